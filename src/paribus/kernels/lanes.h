/* A register of float32 numbers at a time, in the vector extension that gcc and clang share: one source for every
   processor. Loads and stores need no alignment; the last few numbers of a row are padded with zeros. */

#include <stdint.h>
#include <string.h>

#ifdef __AVX512F__
#define LANES 16
#else
#define LANES 8 /* two registers where they hold four */
#endif
#define ALWAYS_INLINE static inline __attribute__((always_inline))

typedef float lanes __attribute__((vector_size(4 * LANES)));
typedef int32_t int_lanes __attribute__((vector_size(4 * LANES)));
typedef uint32_t word_lanes __attribute__((vector_size(4 * LANES)));
typedef uint16_t short_lanes __attribute__((vector_size(2 * LANES)));
typedef float four __attribute__((vector_size(16)));
typedef int32_t four_ints __attribute__((vector_size(16)));

ALWAYS_INLINE lanes all(float x) { return (lanes){0} + x; }

ALWAYS_INLINE lanes load(const float *from) {
    lanes x;
    memcpy(&x, from, sizeof x);
    return x;
}

ALWAYS_INLINE void store(float *to, lanes x) { memcpy(to, &x, sizeof x); }

ALWAYS_INLINE lanes load_some(const float *from, int count) {
    lanes x = {0};
    memcpy(&x, from, count * sizeof(float));
    return x;
}

ALWAYS_INLINE void store_some(float *to, lanes x, int count) { memcpy(to, &x, count * sizeof(float)); }

/* A whole register where the count says so. */
ALWAYS_INLINE lanes load_up_to(const float *from, int count) {
    return count == LANES ? load(from) : load_some(from, count);
}

ALWAYS_INLINE void store_up_to(float *to, lanes x, int count) {
    if (count == LANES)
        store(to, x);
    else
        store_some(to, x, count);
}

/* Four numbers whose sum is that of the register. */
ALWAYS_INLINE four folded(lanes x) {
    four fours[LANES / 4];
    memcpy(fours, &x, sizeof x);
#if LANES == 16
    return (fours[0] + fours[2]) + (fours[1] + fours[3]);
#else
    return fours[0] + fours[1];
#endif
}

ALWAYS_INLINE float sum(lanes x) {
    four s = folded(x);
    return (s[0] + s[2]) + (s[1] + s[3]);
}

#ifdef __clang__
#define PICKED(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define PICKED(a, b, ...) __builtin_shuffle(a, b, (four_ints){__VA_ARGS__})
#endif

/* The sums of four registers, in the order in which `sum` adds. */
ALWAYS_INLINE four four_sums(lanes a, lanes b, lanes c, lanes d) {
    four fa = folded(a), fb = folded(b), fc = folded(c), fd = folded(d);
    four ab = PICKED(fa, fb, 0, 4, 1, 5) + PICKED(fa, fb, 2, 6, 3, 7); /* a0+a2 b0+b2 a1+a3 b1+b3 */
    four cd = PICKED(fc, fd, 0, 4, 1, 5) + PICKED(fc, fd, 2, 6, 3, 7);
    return PICKED(ab, cd, 0, 1, 4, 5) + PICKED(ab, cd, 2, 3, 6, 7);
}

/* mask ? a : b, lane by lane; a mask is what a comparison of lanes gives. */
ALWAYS_INLINE lanes chosen(int_lanes mask, lanes a, lanes b) {
    return (lanes)(((int_lanes)a & mask) | ((int_lanes)b & ~mask));
}

ALWAYS_INLINE lanes largest(lanes a, lanes b) { return chosen(a > b, a, b); }

ALWAYS_INLINE four larger_four(four a, four b) {
    four_ints mask = a > b;
    return (four)(((four_ints)a & mask) | ((four_ints)b & ~mask));
}

/* The largest number of a register. */
ALWAYS_INLINE float maximum(lanes x) {
    four fours[LANES / 4];
    memcpy(fours, &x, sizeof x);
    four most = fours[0];
    for (int i = 1; i < LANES / 4; i++) most = larger_four(fours[i], most);
    most = larger_four(most, PICKED(most, most, 2, 3, 0, 1));
    return most[0] > most[1] ? most[0] : most[1];
}

/* Absolute values as the integers of the same bits, which stand in the same order; a NaN is above infinity. */
ALWAYS_INLINE int_lanes magnitudes(lanes x) { return (int_lanes)x & 0x7fffffff; }

ALWAYS_INLINE int_lanes larger(int_lanes a, int_lanes b) {
    int_lanes mask = a > b;
    return (a & mask) | (b & ~mask);
}

ALWAYS_INLINE four_ints larger_ints(four_ints a, four_ints b) {
    four_ints mask = a > b;
    return (a & mask) | (b & ~mask);
}

/* The largest of them, as a number again: what is a NaN as a number is never compared as one. */
ALWAYS_INLINE float largest_magnitude(int_lanes x) {
    four_ints fours[LANES / 4];
    memcpy(fours, &x, sizeof x);
    four_ints most = fours[0];
    for (int i = 1; i < LANES / 4; i++) most = larger_ints(fours[i], most);
    most = larger_ints(most, PICKED(most, most, 2, 3, 0, 1));
    int32_t top = most[0] > most[1] ? most[0] : most[1];
    float found;
    memcpy(&found, &top, sizeof found);
    return found;
}

/* e^x for x <= 0 within 2 units in the last place; exactly 1 at 0, exactly 0 below -87.3; NaN stays NaN.
   x = n ln 2 + r with |r| <= ln 2 / 2, and the Taylor series of e^r up to r^7 (remainder below 6e-9). */
ALWAYS_INLINE lanes exponential(lanes x) {
    const float lowest = -87.33654f, shift = 12582912.0f; /* 1.5 * 2^23: adding it rounds to an integer */
    int_lanes below = x < lowest;
    x = chosen(below, all(lowest), x);
    lanes shifted = x * 1.44269504f + shift;
    lanes n = shifted - shift;
    lanes r = (x - n * 0.693145752f) - n * 1.42860677e-6f; /* ln 2 in two parts: the first product is exact */
    lanes e = all(1.0f / 5040) * r + 1.0f / 720;
    e = e * r + 1.0f / 120;
    e = e * r + 1.0f / 24;
    e = e * r + 1.0f / 6;
    e = e * r + 0.5f;
    e = e * r * r + r + 1.0f;
    int_lanes power = ((int_lanes)shifted - 0x4b400000 + 127) << 23;
    return (lanes)((int_lanes)(e * (lanes)power) & ~below);
}

/* bfloat16 is the upper half of float32. */
ALWAYS_INLINE lanes from_bfloat16(short_lanes x) { return (lanes)(__builtin_convertvector(x, word_lanes) << 16); }

/* To the nearest, ties to even; a NaN stays one. */
ALWAYS_INLINE short_lanes to_bfloat16(lanes x) {
    word_lanes bits = (word_lanes)x;
    word_lanes rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
    word_lanes not_a_number = (word_lanes)(x != x);
    return __builtin_convertvector((rounded & ~not_a_number) | (0x7fc0 & not_a_number), short_lanes);
}
