/* `exclude_self.py`, one pass forwards and one backwards: a row of v stays in the first-level cache while the query heads
   that share it pass by, and nothing is kept but y and v, of which everything else is formed again. */

#include <math.h>

#include "lanes.h"

#define MOST_WIDTH 1024
#define RELATIVE_EPS 0x1p-20f
#define SMALLEST 1.17549435e-38f
#define PADDED(width) (((width) + LANES - 1) & ~(LANES - 1))
#define AT_MOST_LANES(numbers) ((numbers) < LANES ? (numbers) : LANES)

/* Axes: batch, time, kv_head, group, head_width; strides in numbers, the last axis's is 1. */
struct exclusion {
    int64_t batch, time, kv_heads, group, width, part;
    int32_t narrow_y, narrow_v; /* whether y (and z, and all gradients of them) is bfloat16, whether v is */
    float features;             /* a power of two, no less than the width */
    int64_t y_stride[4], z_stride[4], v_stride[3], strength_stride[2];
    const void *y, *v;
    const float *strength;
    void *z;                /* forwards: what is left of y; backwards: the gradient of y, with y's strides */
    const void *grad;       /* backwards: the gradient of z, with z's strides */
    void *grad_v;           /* [batch time kv_head head_width], of v's type, or NULL */
    float *grad_strength;   /* [part kv_head group], or NULL */
};

ALWAYS_INLINE lanes read_lanes(const void *from, int64_t at, int count, int narrow) {
    if (narrow) {
        short_lanes bits = {0};
        memcpy(&bits, (const uint16_t *)from + at, count * sizeof(uint16_t));
        return from_bfloat16(bits);
    }
    return count == LANES ? load((const float *)from + at) : load_some((const float *)from + at, count);
}

ALWAYS_INLINE void write_lanes(void *to, int64_t at, lanes x, int count, int narrow) {
    if (narrow) {
        short_lanes bits = to_bfloat16(x);
        memcpy((uint16_t *)to + at, &bits, count * sizeof(uint16_t));
    } else if (count == LANES)
        store((float *)to + at, x);
    else
        store_some((float *)to + at, x, count);
}

/* A row in float32, and its largest absolute value: NaN where the row holds one. */
ALWAYS_INLINE float read_row(float *row, const void *from, int64_t at, int width, int narrow) {
    int_lanes most = {0};
    for (int i = 0; i < PADDED(width); i += LANES) {
        lanes x = read_lanes(from, at + i, AT_MOST_LANES(width - i), narrow);
        most = larger(magnitudes(x), most);
        store(row + i, x);
    }
    return largest_magnitude(most);
}

/* The row of a token's value: w = v / max|v|, and w.w. */
struct direction {
    float row[MOST_WIDTH + LANES];
    float largest, inverse, squared;
};

ALWAYS_INLINE void read_direction(struct direction *w, const struct exclusion *e, int64_t at, int width, int narrow) {
    w->largest = read_row(w->row, e->v, at, width, narrow);
    w->inverse = 1 / (w->largest < SMALLEST ? SMALLEST : w->largest);
    lanes squares = {0};
    for (int i = 0; i < PADDED(width); i += LANES) {
        lanes x = load(w->row + i) * w->inverse;
        squares += x * x;
        store(w->row + i, x);
    }
    w->squared = sum(squares);
}

/* Whether the row of y is left as it is. */
ALWAYS_INLINE int row_passes(float largest_y, const struct direction *w) {
    return w->largest <= RELATIVE_EPS * largest_y;
}

/* y.w / w.w. The product is formed of w / features: no sum is larger than y's norm. */
ALWAYS_INLINE float row_along(const float *y, const struct direction *w, const struct exclusion *e, int width) {
    lanes total = {0};
    float small = 1 / e->features;
    for (int i = 0; i < PADDED(width); i += LANES) total += load(y + i) * (load(w->row + i) * small);
    return sum(total) / w->squared * e->features;
}

ALWAYS_INLINE int64_t y_at(const int64_t *stride, int64_t b, int64_t t, int64_t h, int64_t g) {
    return b * stride[0] + t * stride[1] + h * stride[2] + g * stride[3];
}

ALWAYS_INLINE void forward_of(const struct exclusion *e, int64_t first, int64_t end, int width, int narrow_y,
                              int narrow_v) {
    struct direction w;
    float y[MOST_WIDTH + LANES];
    for (int64_t token = first; token < end; token++)
        for (int64_t b = token / e->time, t = token % e->time, h = 0; h < e->kv_heads; h++) {
            read_direction(&w, e, b * e->v_stride[0] + t * e->v_stride[1] + h * e->v_stride[2], width, narrow_v);
            for (int64_t g = 0; g < e->group; g++) {
                float largest_y = read_row(y, e->y, y_at(e->y_stride, b, t, h, g), width, narrow_y);
                float removed = row_passes(largest_y, &w) ? 0 : row_along(y, &w, e, width);
                removed *= e->strength[h * e->strength_stride[0] + g * e->strength_stride[1]];
                int64_t z = y_at(e->z_stride, b, t, h, g);
                for (int i = 0; i < width; i += LANES)
                    write_lanes(e->z, z + i, load(y + i) - removed * load(w.row + i), AT_MOST_LANES(width - i),
                                narrow_y);
            }
        }
}

/* dy = g - s across w,  dv = -(s / max|v|) (across y + along g - 2 along across w),  ds = -along across w.w,
   where across = g.w / w.w. */
ALWAYS_INLINE void backward_of(const struct exclusion *e, int64_t first, int64_t end, int width, int narrow_y,
                               int narrow_v) {
    struct direction w;
    float y[MOST_WIDTH + LANES], up[MOST_WIDTH + LANES], grad_v[MOST_WIDTH + LANES];
    float *grad_strength = e->grad_strength ? e->grad_strength + first / e->part * e->kv_heads * e->group : NULL;
    if (grad_strength) memset(grad_strength, 0, e->kv_heads * e->group * sizeof(float));
    for (int64_t token = first; token < end; token++)
        for (int64_t b = token / e->time, t = token % e->time, h = 0; h < e->kv_heads; h++) {
            read_direction(&w, e, b * e->v_stride[0] + t * e->v_stride[1] + h * e->v_stride[2], width, narrow_v);
            memset(grad_v, 0, PADDED(width) * sizeof(float));
            for (int64_t g = 0; g < e->group; g++) {
                float strength = e->strength[h * e->strength_stride[0] + g * e->strength_stride[1]];
                float largest_y = read_row(y, e->y, y_at(e->y_stride, b, t, h, g), width, narrow_y);
                int64_t above = y_at(e->z_stride, b, t, h, g), at = y_at(e->y_stride, b, t, h, g);
                lanes product = {0};
                for (int i = 0; i < PADDED(width); i += LANES) {
                    lanes x = read_lanes(e->grad, above + i, AT_MOST_LANES(width - i), narrow_y);
                    product += x * load(w.row + i);
                    store(up + i, x);
                }
                int passes = row_passes(largest_y, &w);
                float along = passes ? 0 : row_along(y, &w, e, width);
                float across = passes ? 0 : sum(product) / w.squared;
                float removed = across * strength, scaled = along * w.inverse;
                for (int i = 0; i < width; i += LANES)
                    write_lanes(e->z, at + i, load(up + i) - removed * load(w.row + i), AT_MOST_LANES(width - i),
                                narrow_y);
                if (e->grad_v && !passes)
                    for (int i = 0; i < PADDED(width); i += LANES) {
                        lanes of_v = load(y + i) * w.inverse * -removed;
                        of_v -= scaled * strength * load(up + i);
                        of_v += 2 * (scaled * removed) * load(w.row + i);
                        store(grad_v + i, load(grad_v + i) + of_v);
                    }
                if (grad_strength) grad_strength[h * e->group + g] -= along * across * w.squared;
            }
            if (e->grad_v)
                for (int i = 0; i < width; i += LANES)
                    write_lanes(e->grad_v, (token * e->kv_heads + h) * width + i, load(grad_v + i),
                                AT_MOST_LANES(width - i), narrow_v);
        }
}

static int64_t end_of(const struct exclusion *e, int64_t part) {
    int64_t end = (part + 1) * e->part, tokens = e->batch * e->time;
    return end < tokens ? end : tokens;
}

/* One loop for each combination of types, and where a head is as wide as heads mostly are, of a known width. */
#define BY_TYPE(pass, first, end, width)            \
    if (e->narrow_y && e->narrow_v)                 \
        pass(e, first, end, width, 1, 1);           \
    else if (e->narrow_y)                           \
        pass(e, first, end, width, 1, 0);           \
    else if (e->narrow_v)                           \
        pass(e, first, end, width, 0, 1);           \
    else                                            \
        pass(e, first, end, width, 0, 0)
#define BY_WIDTH(pass, first, end)                  \
    switch (e->width) {                             \
    case 32: BY_TYPE(pass, first, end, 32); break;  \
    case 64: BY_TYPE(pass, first, end, 64); break;  \
    case 128: BY_TYPE(pass, first, end, 128); break; \
    default: BY_TYPE(pass, first, end, e->width);   \
    }

void exclude_forward(const struct exclusion *e, int64_t first_part, int64_t end_part) {
    BY_WIDTH(forward_of, first_part * e->part, end_of(e, end_part - 1))
}

void exclude_backward(const struct exclusion *e, int64_t first_part, int64_t end_part) {
    for (int64_t part = first_part; part < end_part; part++) BY_WIDTH(backward_of, part * e->part, end_of(e, part))
}
