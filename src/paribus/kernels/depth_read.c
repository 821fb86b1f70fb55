/* The read of `depth_read.py` for M queries over K sources, a token at a time: what a token needs of all sources fits
   the first-level cache, so that every source comes from memory once and every result goes there once.
   Tokens are worked on in parts of a fixed size. A part adds up its own gradient of the queries, so that the sum over
   parts does not depend on how many threads work on them. */

#include <math.h>

#include "lanes.h"

#define MOST_QUERIES 4
#define MOST_SOURCES 256
#define PADDED_SOURCES (MOST_SOURCES + LANES)

struct read {
    int64_t tokens, width, queries, sources, part;
    const float *const *value;       /* [source] -> [token width] */
    const float *const *inverse_rms; /* [source] -> [token] */
    const float *keyed;              /* [query width] */
    float *scores;                   /* [token query source] */
    float *const *mix;               /* [query] -> [token width] */
    const float *const *grad_mix;    /* [query] -> [token width] */
    const float *const *grad_before; /* [source] -> [token width], or NULL: what is there to be added to */
    float *const *grad_after;        /* [source] -> [token width] */
    float *grad_keyed;               /* [part query width] */
};

/* p = softmax(s) over the sources; both padded to whole lanes. */
ALWAYS_INLINE void softmax(const float *s, float *p, int sources) {
    lanes highest = all(-INFINITY);
    int k = 0;
    for (; k + LANES <= sources; k += LANES) highest = largest(load(s + k), highest);
    float top = -INFINITY;
    for (int i = 0; i < LANES; i++) top = highest[i] > top ? highest[i] : top;
    for (; k < sources; k++) top = s[k] > top ? s[k] : top;
    float total = 0;
    for (k = 0; k < sources; k += LANES) {
        lanes e = exponential(load(s + k) - top);
        store(p + k, e);
        int here = sources - k < LANES ? sources - k : LANES;
        for (int i = 0; i < here; i++) total += e[i];
    }
    float inverse = 1.0f / total;
    for (k = 0; k < sources; k += LANES) store(p + k, load(p + k) * inverse);
}

/* out[m][k] = a_m . v_k for one token; a_m and v_k [width]. */
ALWAYS_INLINE void products(const int M, const float *const *a, const float *const *v, int sources, int width,
                            float out[][PADDED_SOURCES]) {
    int whole = width & ~(LANES - 1), rest = width - whole;
    for (int k = 0; k < sources; k++) {
        lanes total[M];
        for (int m = 0; m < M; m++) total[m] = (lanes){0};
        for (int i = 0; i < whole; i += LANES) {
            lanes x = load(v[k] + i);
            for (int m = 0; m < M; m++) total[m] += load(a[m] + i) * x;
        }
        if (rest) {
            lanes x = load_some(v[k] + whole, rest);
            for (int m = 0; m < M; m++) total[m] += load_some(a[m] + whole, rest) * x;
        }
        for (int m = 0; m < M; m++) out[m][k] = sum(total[m]);
    }
}

ALWAYS_INLINE void forward_of(const int M, const struct read *r, int64_t first, int64_t end) {
    const int sources = r->sources, width = r->width, whole = width & ~(LANES - 1), rest = width - whole;
    float s[M][PADDED_SOURCES], p[M][PADDED_SOURCES];
    const float *keyed[M], *v[MOST_SOURCES];
    memset(s, 0, sizeof s);
    for (int m = 0; m < M; m++) keyed[m] = r->keyed + m * width;
    for (int64_t t = first; t < end; t++) {
        for (int k = 0; k < sources; k++) v[k] = r->value[k] + t * width;
        products(M, keyed, v, sources, width, s);
        for (int m = 0; m < M; m++) {
            for (int k = 0; k < sources; k++) s[m][k] *= r->inverse_rms[k][t];
            memcpy(r->scores + (t * M + m) * sources, s[m], sources * sizeof(float));
            softmax(s[m], p[m], sources);
        }
        for (int i = 0; i < whole; i += LANES) {
            lanes x = load(v[0] + i), mix[M];
            for (int m = 0; m < M; m++) mix[m] = p[m][0] * x;
            for (int k = 1; k < sources; k++) {
                x = load(v[k] + i);
                for (int m = 0; m < M; m++) mix[m] += p[m][k] * x;
            }
            for (int m = 0; m < M; m++) store(r->mix[m] + t * width + i, mix[m]);
        }
        if (rest)
            for (int m = 0; m < M; m++) {
                lanes mix = p[m][0] * load_some(v[0] + whole, rest);
                for (int k = 1; k < sources; k++) mix += p[m][k] * load_some(v[k] + whole, rest);
                store_some(r->mix[m] + t * width + whole, mix, rest);
            }
    }
}

/* With a = G . v:  ds = p (a - sum p a),  dv += sum_m (p G + ds r w) - r^2 v (sum_m ds s) / width,  dw += ds r v. */
ALWAYS_INLINE void backward_of(const int M, const struct read *r, int64_t first, int64_t end) {
    const int sources = r->sources, width = r->width, whole = width & ~(LANES - 1), rest = width - whole;
    float s[M][PADDED_SOURCES], p[M][PADDED_SOURCES], a[M][PADDED_SOURCES], scaled[M][PADDED_SOURCES];
    float radial[PADDED_SOURCES];
    const float *g[M], *v[MOST_SOURCES], *before[MOST_SOURCES];
    float *after[MOST_SOURCES], *grad_keyed = r->grad_keyed + first / r->part * M * width;
    memset(s, 0, sizeof s);
    memset(grad_keyed, 0, M * width * sizeof(float));
    for (int64_t t = first; t < end; t++) {
        for (int k = 0; k < sources; k++) {
            v[k] = r->value[k] + t * width;
            before[k] = r->grad_before[k] ? r->grad_before[k] + t * width : NULL;
            after[k] = r->grad_after[k] + t * width;
            radial[k] = 0;
        }
        for (int m = 0; m < M; m++) g[m] = r->grad_mix[m] + t * width;
        products(M, g, v, sources, width, a);
        for (int m = 0; m < M; m++) {
            memcpy(s[m], r->scores + (t * M + m) * sources, sources * sizeof(float));
            softmax(s[m], p[m], sources);
            float mean = 0;
            for (int k = 0; k < sources; k++) mean += p[m][k] * a[m][k];
            for (int k = 0; k < sources; k++) {
                float inverse = r->inverse_rms[k][t], of_score = p[m][k] * (a[m][k] - mean);
                scaled[m][k] = of_score * inverse;
                radial[k] += of_score * s[m][k] / width * inverse * inverse;
            }
        }
        for (int i = 0; i < whole; i += LANES) {
            lanes upstream[M], keyed[M], of_keyed[M];
            for (int m = 0; m < M; m++) {
                upstream[m] = load(g[m] + i);
                keyed[m] = load(r->keyed + m * width + i);
                of_keyed[m] = load(grad_keyed + m * width + i);
            }
            for (int k = 0; k < sources; k++) {
                lanes x = load(v[k] + i);
                lanes grad = before[k] ? load(before[k] + i) : (lanes){0};
                grad -= radial[k] * x;
                for (int m = 0; m < M; m++) {
                    grad += p[m][k] * upstream[m] + scaled[m][k] * keyed[m];
                    of_keyed[m] += scaled[m][k] * x;
                }
                store(after[k] + i, grad);
            }
            for (int m = 0; m < M; m++) store(grad_keyed + m * width + i, of_keyed[m]);
        }
        if (rest)
            for (int k = 0; k < sources; k++) {
                lanes x = load_some(v[k] + whole, rest);
                lanes grad = before[k] ? load_some(before[k] + whole, rest) : (lanes){0};
                grad -= radial[k] * x;
                for (int m = 0; m < M; m++) {
                    float *of_keyed = grad_keyed + m * width + whole;
                    grad += p[m][k] * load_some(g[m] + whole, rest);
                    grad += scaled[m][k] * load_some(r->keyed + m * width + whole, rest);
                    store_some(of_keyed, load_some(of_keyed, rest) + scaled[m][k] * x, rest);
                }
                store_some(after[k] + whole, grad, rest);
            }
    }
}

typedef void pass(const struct read *, int64_t, int64_t);

#define FOR_QUERIES(M)                                                                                              \
    static void forward_##M(const struct read *r, int64_t first, int64_t end) { forward_of(M, r, first, end); }    \
    static void backward_##M(const struct read *r, int64_t first, int64_t end) { backward_of(M, r, first, end); }

FOR_QUERIES(1)
FOR_QUERIES(2)
FOR_QUERIES(3)
FOR_QUERIES(4)

static void in_parts(pass *one, const struct read *r, int64_t first_part, int64_t end_part) {
    for (int64_t part = first_part; part < end_part; part++) {
        int64_t first = part * r->part, end = first + r->part;
        one(r, first, end < r->tokens ? end : r->tokens);
    }
}

void read_forward(const struct read *r, int64_t first_part, int64_t end_part) {
    static pass *const passes[MOST_QUERIES] = {forward_1, forward_2, forward_3, forward_4};
    in_parts(passes[r->queries - 1], r, first_part, end_part);
}

void read_backward(const struct read *r, int64_t first_part, int64_t end_part) {
    static pass *const passes[MOST_QUERIES] = {backward_1, backward_2, backward_3, backward_4};
    in_parts(passes[r->queries - 1], r, first_part, end_part);
}

struct sum {
    int64_t tokens, width, part;
    float eps;
    int32_t narrow;       /* whether delta is bfloat16 */
    const float *running; /* [token width], or NULL */
    const void *delta;    /* [token width] */
    float *value;         /* [token width], or NULL where delta is the value itself */
    float *inverse_rms;   /* [token] */
};

/* value = running + delta, and 1 / sqrt(mean(value^2) + eps), in one pass. */
void sum_forward(const struct sum *s, int64_t first_part, int64_t end_part) {
    const int width = s->width;
    int64_t end = end_part * s->part < s->tokens ? end_part * s->part : s->tokens;
    for (int64_t t = first_part * s->part; t < end; t++) {
        lanes squares = {0};
        for (int i = 0; i < width; i += LANES) {
            int64_t at = t * width + i;
            int here = width - i < LANES ? width - i : LANES;
            lanes x = {0};
            if (s->narrow) {
                short_lanes bits = {0};
                memcpy(&bits, (const uint16_t *)s->delta + at, here * sizeof(uint16_t));
                x = from_bfloat16(bits);
            } else
                x = here == LANES ? load((const float *)s->delta + at) : load_some((const float *)s->delta + at, here);
            if (s->running) x += here == LANES ? load(s->running + at) : load_some(s->running + at, here);
            squares += x * x;
            if (s->value) {
                if (here == LANES)
                    store(s->value + at, x);
                else
                    store_some(s->value + at, x, here);
            }
        }
        s->inverse_rms[t] = 1.0f / sqrtf(sum(squares) / width + s->eps);
    }
}
