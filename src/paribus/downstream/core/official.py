"""What CORE is: its 22 tasks as DCLM lists them and nanochat ships them, and what is known of the shipped files.

Li et al., DataComp-LM (2024), arXiv 2406.11794, and the list of tasks, the table of baselines and the archive of
nanochat (karpathy/nanochat, scripts/base_eval.py). The number of items of each task is what makes a bundle complete:
91,037 in all. SHA-256 of the archive as several public projects recorded it in 2026; of each file, that of its
content in the repository that it comes from (mosaicml/llm-foundry), whose Git blobs are the bundle's.
"""

import hashlib
from dataclasses import dataclass
from typing import Literal

Kind = Literal["multiple_choice", "schema", "language_modeling"]

ADDRESS = "https://karpathy-public.s3.us-west-2.amazonaws.com/eval_bundle.zip"
ARCHIVE_SHA256 = "90a7c19e28ee7a52b4f6e1f87658deb9fde7f63deba2379045bdb1fe9ea5d200"
FOLDER = "eval_bundle"
"""the archive's one folder; where a bundle is put that is fetched without naming a place"""
LIST_FILE = "core.yaml"
BASELINES_FILE = "eval_meta_data.csv"
BASELINES_V2_FILE = "eval_meta_data_v2.csv"
"""our name for a copy of the corrected table beside the bundle's own"""
DATA = "eval_data"

_ANSWER = "\nAnswer: "


@dataclass(frozen=True)
class Official:
    """One task of CORE."""

    kind: Kind
    shots: int
    """examples before the question"""
    rows: int
    """items"""
    delimiter: str = " "
    """between a question and its answer"""
    sha256: str = ""
    """of the file's content; empty where it was never published"""
    git_blob: str = ""
    """first digits of the content's Git blob id; empty where unknown"""

    def is_altered(self, content: bytes) -> bool | None:
        """Whether the content is another than the shipped one; None where nothing is known to compare it with."""
        if self.sha256:
            return hashlib.sha256(content).hexdigest() != self.sha256
        if self.git_blob:
            blob = hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()
            return not blob.startswith(self.git_blob)
        return None


_HELLASWAG_BLOB = "448321079fdc"

CORE: dict[str, Official] = {
    "hellaswag_zeroshot": Official("multiple_choice", 0, 10_042, git_blob=_HELLASWAG_BLOB),
    "jeopardy": Official(
        "language_modeling", 10, 2_117, _ANSWER, "187e7f270a440c63d6cf11a57459fdc7e0bce889338225e42cc88e24ee13d52e"
    ),
    "bigbench_qa_wikidata": Official(
        "language_modeling", 10, 20_321, " ", "bb0d22727cb25beffb022c8e8c0c3e1159c8b3c7bd7284603c0d6491f8616265"
    ),
    "arc_easy": Official(
        "multiple_choice", 10, 2_376, _ANSWER, "d2d12e59543acf9a5ef6079634a72b30215e36c2fd4236fff3bc855d287b87f5"
    ),
    "arc_challenge": Official(
        "multiple_choice", 10, 1_172, _ANSWER, "1ae3aeedf1951d881cbd5c2e3a31e78a1993d251479afbe4cb413b6707244636"
    ),
    "copa": Official(
        "multiple_choice", 0, 100, " ", "595dca44dec54c849490bd403a3e24a29e3b944065783222ebb0eb1a55298846"
    ),
    "commonsense_qa": Official(
        "multiple_choice", 10, 1_221, " ", "2771f63f8127c0725b1f6b0ef2cd2ef6469168ae5875fc8d276b25b4f32c8c1a"
    ),
    "piqa": Official(
        "multiple_choice", 10, 1_838, _ANSWER, "d2870e73aec5154df3faf259b7700876e11608eebdf69e9d6667435673dbe4e0"
    ),
    "openbook_qa": Official(
        "multiple_choice", 0, 500, " ", "adb2e5c7f8db810ddad4d6b2bf53dcc86dcc545499f7aafcaf42a8e179476c09"
    ),
    "lambada_openai": Official(
        "language_modeling", 0, 5_153, " ", "411bfbe5b9054346b6a19299c0242670adbefb9162efd958593cbc0290b8c9dc"
    ),
    "hellaswag": Official("multiple_choice", 10, 10_042, git_blob=_HELLASWAG_BLOB),
    "winograd": Official("schema", 0, 273, " ", "746336c27cd2e39a554cb1b8b4869d0f1ae2577ac5bfe799842d26bca5a5bf5e"),
    "winogrande": Official("schema", 0, 1_267, " ", "ea1592526f3bfdd0948ed3acb1b4dfa3f83d23698917118688ee1df7f8d4b8d7"),
    "bigbench_dyck_languages": Official(
        "language_modeling", 10, 1_000, " ", "106ba9ac7507c7ab385c5e59c49cd57aa83025abf080d9b2a2661c0d6c6dbcc5"
    ),
    "agi_eval_lsat_ar": Official(
        "multiple_choice", 3, 230, " ", "9ffd73480b51746c11627e56239f8b87035eb255cb92c3a58fd64e2e4b65fb56"
    ),
    "bigbench_cs_algorithms": Official(
        "language_modeling", 10, 1_320, " ", "8485683a8c7e7e6c9fc6ca3cc81140fd85edb27f34406a6736d1539cf7ebcb3a"
    ),
    "bigbench_operators": Official(
        "language_modeling", 10, 210, " ", "41e2964ad619c49edd97c22b2c50f922a0241255d906a754bf81a20f4f66b85f"
    ),
    "bigbench_repeat_copy_logic": Official(
        "language_modeling", 10, 32, " ", "8febd2c0080a15680cd17f92bfa30d87abcfac021e646e55d0b8ad69f0cfa767"
    ),
    "squad": Official("language_modeling", 10, 10_570),
    "coqa": Official("language_modeling", 0, 7_983),
    "boolq": Official(
        "multiple_choice", 10, 3_270, _ANSWER, "454ff101e614370bb1807fe7ebbda6fdb57e794b9662cc1ccae211bf1ff626c8"
    ),
    "bigbench_language_identification": Official(
        "multiple_choice", 10, 10_000, " ", "80c98d8e7ab8213513d1643886229c05c40a6837353b07c19ac7bd860668954e"
    ),
}
"""By label, in the order of the list that is shipped."""
