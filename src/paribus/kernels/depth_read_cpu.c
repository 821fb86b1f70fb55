/* The read of `depth_read.py` for M queries over K sources, a token at a time: what a token needs of all sources fits
   the first-level cache, so that every source comes from memory once and every result goes there once.
   Tokens are worked on in parts of a fixed size. A part adds up its own gradient of the queries, so that the sum over
   parts does not depend on how many threads work on them.

   With a norm behind the read, h = mix / sqrt(mean(mix^2) + eps) * gain takes the place of the mix, and nothing is kept
   of it but the root: the backward pass forms the mix again, while the token's sources are at hand. */

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
    float *inverse_mix;              /* [token query] 1 / root mean square of the mix, or NULL: no norm is behind it */
    const float *norm_gain;          /* [width], or NULL: ones */
    float *grad_norm_gain;           /* [part width] */
    float *rows;                     /* [part query width] room for a token's mixes */
    float norm_eps;
};

/* p = softmax(s) over the sources. Both are padded to whole lanes, s with minus infinity, whose weight is zero. */
ALWAYS_INLINE void softmax(const float *s, float *p, int sources) {
    lanes highest = load(s), total = {0};
    for (int k = LANES; k < sources; k += LANES) highest = largest(load(s + k), highest);
    float top = maximum(highest);
    for (int k = 0; k < sources; k += LANES) {
        lanes e = exponential(load(s + k) - top);
        total += e;
        store(p + k, e);
    }
    float inverse = 1.0f / sum(total);
    for (int k = 0; k < sources; k += LANES) store(p + k, load(p + k) * inverse);
}

ALWAYS_INLINE void pad(float *s, int sources) {
    for (int k = sources; k % LANES; k++) s[k] = -INFINITY;
}

/* Sums of `count` products a_m . v_k of one token, from source k on: as many sources at a time as registers hold, so
   that a_m is loaded once for all of them. */
ALWAYS_INLINE void products_of(const int M, const int S, const float *const *a, const float *const *v, int width,
                               float out[][PADDED_SOURCES], int k) {
    lanes total[M][S];
    for (int m = 0; m < M; m++)
        for (int j = 0; j < S; j++) total[m][j] = (lanes){0};
    int i = 0;
    for (; i + LANES <= width; i += LANES)
        for (int m = 0; m < M; m++) {
            lanes x = load(a[m] + i);
            for (int j = 0; j < S; j++) total[m][j] += x * load(v[k + j] + i);
        }
    if (i < width)
        for (int m = 0; m < M; m++) {
            lanes x = load_some(a[m] + i, width - i);
            for (int j = 0; j < S; j++) total[m][j] += x * load_some(v[k + j] + i, width - i);
        }
    for (int m = 0; m < M; m++)
        if (S == 4) {
            four sums = four_sums(total[m][0], total[m][1 % S], total[m][2 % S], total[m][3 % S]);
            memcpy(out[m] + k, &sums, sizeof sums);
        } else
            for (int j = 0; j < S; j++) out[m][k + j] = sum(total[m][j]);
}

/* out[m][k] = a_m . v_k for one token; a_m and v_k [width]. */
ALWAYS_INLINE void products(const int M, const float *const *a, const float *const *v, int sources, int width,
                            float out[][PADDED_SOURCES]) {
    int k = 0;
    for (; k + 4 <= sources; k += 4) products_of(M, 4, a, v, width, out, k);
    for (; k < sources; k++) products_of(M, 1, a, v, width, out, k);
}

/* Features i.. of a token's mixes, `count` of each of C registers. */
ALWAYS_INLINE void mix_of(const int M, const int C, const struct read *r, const float *const *v,
                          float p[][PADDED_SOURCES], int64_t t, int i, int count) {
    lanes mix[M][C];
    for (int c = 0; c < C; c++) {
        lanes x = load_up_to(v[0] + i + c * LANES, count);
        for (int m = 0; m < M; m++) mix[m][c] = p[m][0] * x;
    }
    for (int k = 1; k < r->sources; k++)
        for (int c = 0; c < C; c++) {
            lanes x = load_up_to(v[k] + i + c * LANES, count);
            for (int m = 0; m < M; m++) mix[m][c] += p[m][k] * x;
        }
    for (int m = 0; m < M; m++)
        for (int c = 0; c < C; c++) store_up_to(r->mix[m] + t * r->width + i + c * LANES, mix[m][c], count);
}

/* A token's mix becomes what the norm makes of it, in place. */
ALWAYS_INLINE void normalise(const struct read *r, float *mix, float *inverse) {
    const int width = r->width;
    lanes squares = {0};
    for (int i = 0; i < width; i += LANES) {
        lanes x = load_up_to(mix + i, width - i < LANES ? width - i : LANES);
        squares += x * x;
    }
    float scale = *inverse = 1.0f / sqrtf(sum(squares) / width + r->norm_eps);
    for (int i = 0; i < width; i += LANES) {
        int here = width - i < LANES ? width - i : LANES;
        lanes x = load_up_to(mix + i, here) * scale;
        store_up_to(mix + i, r->norm_gain ? x * load_up_to(r->norm_gain + i, here) : x, here);
    }
}

ALWAYS_INLINE void forward_of(const int M, const struct read *r, int64_t first, int64_t end) {
    const int sources = r->sources, width = r->width, C = M <= 2 ? 4 : 2;
    float s[M][PADDED_SOURCES], p[M][PADDED_SOURCES];
    const float *keyed[M], *v[MOST_SOURCES];
    for (int m = 0; m < M; m++) keyed[m] = r->keyed + m * width;
    for (int64_t t = first; t < end; t++) {
        for (int k = 0; k < sources; k++) v[k] = r->value[k] + t * width;
        products(M, keyed, v, sources, width, s);
        for (int m = 0; m < M; m++) {
            for (int k = 0; k < sources; k++) s[m][k] *= r->inverse_rms[k][t];
            memcpy(r->scores + (t * M + m) * sources, s[m], sources * sizeof(float));
            pad(s[m], sources);
            softmax(s[m], p[m], sources);
        }
        int i = 0;
        for (; i + C * LANES <= width; i += C * LANES) mix_of(M, C, r, v, p, t, i, LANES);
        for (; i + LANES <= width; i += LANES) mix_of(M, 1, r, v, p, t, i, LANES);
        if (i < width) mix_of(M, 1, r, v, p, t, i, width - i);
        if (r->inverse_mix)
            for (int m = 0; m < M; m++) normalise(r, r->mix[m] + t * width, r->inverse_mix + t * M + m);
    }
}

/* Features i.. of a token's mixes again, `count` of each of C registers: into `row`, with what its norm's gradient is
   made of. `above` is the gradient of the norm's result. */
ALWAYS_INLINE void mix_again(const int M, const int C, const struct read *r, const float *const *v,
                             float p[][PADDED_SOURCES], const float *const *above, const float *inverse,
                             float *const *row, lanes *agreement, float *grad_gain, int i, int count) {
    lanes mix[M][C];
    for (int m = 0; m < M; m++)
        for (int c = 0; c < C; c++) mix[m][c] = (lanes){0};
    for (int k = 0; k < r->sources; k++)
        for (int c = 0; c < C; c++) {
            lanes x = load_up_to(v[k] + i + c * LANES, count);
            for (int m = 0; m < M; m++) mix[m][c] += p[m][k] * x;
        }
    for (int c = 0; c < C; c++) {
        int at = i + c * LANES;
        lanes gain = r->norm_gain ? load_up_to(r->norm_gain + at, count) : all(1), of_gain = load_up_to(grad_gain + at, count);
        for (int m = 0; m < M; m++) {
            lanes g = load_up_to(above[m] + at, count);
            agreement[m] += mix[m][c] * g * gain;
            of_gain += mix[m][c] * g * inverse[m];
            store_up_to(row[m] + at, mix[m][c], count);
        }
        store_up_to(grad_gain + at, of_gain, count);
    }
}

/* With h = r mix gain and r = (mean(mix^2) + eps)^(-1/2):  dmix = r gain dh - r^3 mix (mix . gain dh) / width. */
ALWAYS_INLINE void through_norm(const int M, const struct read *r, const float *const *v, float p[][PADDED_SOURCES],
                                const float *const *above, const float *inverse, float *const *row, float *grad_gain) {
    const int width = r->width, C = M <= 2 ? 2 : 1;
    lanes agreement[M];
    for (int m = 0; m < M; m++) agreement[m] = (lanes){0};
    int i = 0;
    for (; i + C * LANES <= width; i += C * LANES)
        mix_again(M, C, r, v, p, above, inverse, row, agreement, grad_gain, i, LANES);
    for (; i + LANES <= width; i += LANES)
        mix_again(M, 1, r, v, p, above, inverse, row, agreement, grad_gain, i, LANES);
    if (i < width) mix_again(M, 1, r, v, p, above, inverse, row, agreement, grad_gain, i, width - i);
    for (int m = 0; m < M; m++) {
        float radial = inverse[m] * inverse[m] * (sum(agreement[m]) / width);
        for (i = 0; i < width; i += LANES) {
            int here = width - i < LANES ? width - i : LANES;
            lanes g = load_up_to(above[m] + i, here), mix = load_up_to(row[m] + i, here);
            if (r->norm_gain) g *= load_up_to(r->norm_gain + i, here);
            store_up_to(row[m] + i, (g - mix * radial) * inverse[m], here);
        }
    }
}

/* What the backward pass of one token has found out before it writes gradients. */
struct upstream {
    const float *v[MOST_SOURCES], *before[MOST_SOURCES];
    float *after[MOST_SOURCES], radial[PADDED_SOURCES];
};

/* Features i.. of the gradients of a token's sources, `count` of each of C registers. */
ALWAYS_INLINE void gradients_of(const int M, const int C, const struct read *r, const struct upstream *u,
                                const float *const *g, float p[][PADDED_SOURCES], float scaled[][PADDED_SOURCES],
                                float *grad_keyed, int i, int count) {
    lanes above[M][C], keyed[M][C], of_keyed[M][C];
    for (int m = 0; m < M; m++)
        for (int c = 0; c < C; c++) {
            int at = i + c * LANES;
            above[m][c] = load_up_to(g[m] + at, count);
            keyed[m][c] = load_up_to(r->keyed + m * r->width + at, count);
            of_keyed[m][c] = load_up_to(grad_keyed + m * r->width + at, count);
        }
    for (int k = 0; k < r->sources; k++)
        for (int c = 0; c < C; c++) {
            int at = i + c * LANES;
            lanes x = load_up_to(u->v[k] + at, count);
            lanes grad = u->before[k] ? load_up_to(u->before[k] + at, count) : (lanes){0};
            grad -= u->radial[k] * x;
            for (int m = 0; m < M; m++) {
                grad += p[m][k] * above[m][c];
                grad += scaled[m][k] * keyed[m][c];
                of_keyed[m][c] += scaled[m][k] * x;
            }
            store_up_to(u->after[k] + at, grad, count);
        }
    for (int m = 0; m < M; m++)
        for (int c = 0; c < C; c++) store_up_to(grad_keyed + m * r->width + i + c * LANES, of_keyed[m][c], count);
}

/* With a = G . v:  ds = p (a - sum p a),  dv += sum_m (p G + ds r w) - r^2 v (sum_m ds s) / width,  dw += ds r v. */
ALWAYS_INLINE void backward_of(const int M, const struct read *r, int64_t first, int64_t end) {
    const int sources = r->sources, width = r->width, C = M == 1 ? 4 : M == 2 ? 2 : 1;
    float s[M][PADDED_SOURCES], p[M][PADDED_SOURCES], a[M][PADDED_SOURCES], scaled[M][PADDED_SOURCES];
    float *grad_keyed = r->grad_keyed + first / r->part * M * width;
    float *grad_gain = r->inverse_mix ? r->grad_norm_gain + first / r->part * width : NULL;
    float *row[M];
    const float *g[M];
    struct upstream u;
    memset(grad_keyed, 0, M * width * sizeof(float));
    if (grad_gain) memset(grad_gain, 0, width * sizeof(float));
    for (int m = 0; m < M; m++) row[m] = grad_gain ? r->rows + (first / r->part * M + m) * width : NULL;
    for (int64_t t = first; t < end; t++) {
        for (int k = 0; k < sources; k++) {
            u.v[k] = r->value[k] + t * width;
            u.before[k] = r->grad_before[k] ? r->grad_before[k] + t * width : NULL;
            u.after[k] = r->grad_after[k] + t * width;
            u.radial[k] = 0;
        }
        for (int m = 0; m < M; m++) {
            g[m] = r->grad_mix[m] + t * width;
            memcpy(s[m], r->scores + (t * M + m) * sources, sources * sizeof(float));
            pad(s[m], sources);
            softmax(s[m], p[m], sources);
        }
        if (grad_gain) {
            through_norm(M, r, u.v, p, g, r->inverse_mix + t * M, row, grad_gain);
            for (int m = 0; m < M; m++) g[m] = row[m];
        }
        products(M, g, u.v, sources, width, a);
        for (int m = 0; m < M; m++) {
            float mean = 0;
            for (int k = 0; k < sources; k++) mean += p[m][k] * a[m][k];
            for (int k = 0; k < sources; k++) {
                float inverse = r->inverse_rms[k][t], of_score = p[m][k] * (a[m][k] - mean);
                scaled[m][k] = of_score * inverse;
                u.radial[k] += of_score * s[m][k] / width * inverse * inverse;
            }
        }
        int i = 0;
        for (; i + C * LANES <= width; i += C * LANES) gradients_of(M, C, r, &u, g, p, scaled, grad_keyed, i, LANES);
        for (; i + LANES <= width; i += LANES) gradients_of(M, 1, r, &u, g, p, scaled, grad_keyed, i, LANES);
        if (i < width) gradients_of(M, 1, r, &u, g, p, scaled, grad_keyed, i, width - i);
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
