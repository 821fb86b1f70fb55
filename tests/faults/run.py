"""Everything that can happen to a study while nobody looks, done to a tiny one; and a table of what was survived.

    python tests/faults/run.py --seed 1
    python tests/faults/run.py --seed 1 --only kills --kills 20

Real processes are killed (SIGKILL), stopped and run out of disk, bytes are changed and power losses replayed, at
moments that a generator named after the seed draws. The code is 1 where anything was lost; the folders of what was lost
are kept, and named. Files of paribus must not change meanwhile: cells are named after the code that trains them.

Not tested here: NFS, whose answers can be lost or old, and power loss on a real disk whose cache lies about what it
has written.
"""

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[2]))
    from tests.faults.command import main

    sys.exit(main(__doc__))
