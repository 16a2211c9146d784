// What the buffers of a collective hold, and whether they hold it, on a GPU: the same figures as src/data, element by
// element. It is C as well as CUDA, so that a test can compare the two on a machine without a GPU (src/data/recipe).
//
// data.ptx is made from this by gpu/compile.

typedef unsigned long long u64;
typedef long long i64;
typedef unsigned int u32;

#ifdef __CUDACC__
#define FN static __device__ __forceinline__
#define HIGH_PRODUCT(a, b) __umul64hi(a, b)
#define LEADING_ZEROS(a) __clzll((i64)(a))
#else
#define FN static inline
#define HIGH_PRODUCT(a, b) ((u64)(((unsigned __int128)(a) * (b)) >> 64))
#define LEADING_ZEROS(a) __builtin_clzll(a)
#endif

// `Numbers` of src/data/recipe.rs, field by field.
struct Recipe {
    u64 seed;
    u64 first;
    u64 choices;
    i64 divisor;
    u64 range;
    u64 shift;
    u32 rule;
    u32 n_ranks;
    u32 rank;
    u32 is_result;
    u32 element_bytes;
    u32 exponent_bits;
    u32 fraction_bits;
    u32 is_signed;
    u32 least;
    u32 flipped;
};

enum { BYTES, DIFFERENCES, SHARES, FACTORS, EXTREMES };
enum { TURN, TOTAL, STEPS };

FN u64 mix(u64 value) {
    value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9ull;
    value = (value ^ (value >> 27)) * 0x94d049bb133111ebull;
    return value ^ (value >> 31);
}

FN u64 word(const struct Recipe *r, u64 stream, u64 index) {
    return mix(r->seed + (stream << 48) + index * 0x9e3779b97f4a7c15ull);
}

FN u64 below(u64 word, u64 limit) { return HIGH_PRODUCT(word, limit); }

FN u64 step(const struct Recipe *r, u32 number, u64 index) {
    return word(r, STEPS + (u64)number, index);
}

FN u64 member(const struct Recipe *r, u64 index, u32 number) {
    return number == 0 ? 0 : step(r, number, index);
}

FN u64 with_sign(u64 value, int negative) { return negative ? 0 - value : value; }

FN u64 share(const struct Recipe *r, const u32 *weights, u64 index, u32 turn) {
    u64 total_word = word(r, TOTAL, index);
    i64 quotient = (i64)below(total_word, r->choices);
    int negative = r->is_signed && (total_word & 1);
    i64 total = quotient * r->divisor;
    if (r->is_result)
        return with_sign((u64)quotient, negative);
    i64 from = (total * (i64)weights[turn]) >> 16;
    i64 to = (total * (i64)weights[turn + 1]) >> 16;
    return with_sign((u64)(to - from), negative);
}

FN int is_negative(const struct Recipe *r, u64 index, u32 number) {
    return r->is_signed && number > 0 && (step(r, number, index) & 1);
}

FN u64 factor(const struct Recipe *r, u64 index, u32 turn) {
    u64 significand = 4 + (word(r, TOTAL, index) & 3);
    if (r->is_result)
        return with_sign(significand * (r->n_ranks > 1 ? 2 : 1), is_negative(r, index, r->n_ranks));
    u64 value = turn == 0 ? significand : turn == 1 ? 2 : 1;
    return with_sign(value, is_negative(r, index, turn) != is_negative(r, index, turn + 1));
}

FN u64 extreme(const struct Recipe *r, u64 index, u32 turn) {
    u64 from_end = below(word(r, TOTAL, index), r->range / 2 + 1);
    if (!r->is_result && turn != 0)
        from_end += 1 + below(step(r, turn, index), r->range - from_end);
    return (r->least ? from_end : r->range - from_end) + r->shift;
}

// The whole number `value`, which the type holds exactly.
FN u64 encoded(const struct Recipe *r, u64 value) {
    if (r->exponent_bits == 0 || value == 0)
        return value;
    u64 negative = value >> 63;
    u64 magnitude = negative ? 0 - value : value;
    u32 power = 63 - LEADING_ZEROS(magnitude);
    u64 below_leading = magnitude ^ (1ull << power);
    u64 fraction = power > r->fraction_bits ? below_leading >> (power - r->fraction_bits)
                                            : below_leading << (r->fraction_bits - power);
    u64 exponent = power + (1ull << (r->exponent_bits - 1)) - 1;
    return (((negative << r->exponent_bits) | exponent) << r->fraction_bits) | fraction;
}

// The bits of element `index`, counted from the begin of what the recipe is for.
FN u64 element(const struct Recipe *r, const u32 *weights, u64 index) {
    index += r->first;
    u64 bits;
    if (r->rule == BYTES) {
        u64 byte = index * r->element_bytes;
        bits = word(r, (u64)r->rank + 1, byte / 8) >> (8 * (byte % 8));
    } else {
        u32 turn = r->is_result ? 0 : (u32)((r->rank + below(word(r, TURN, index), r->n_ranks)) % r->n_ranks);
        u64 value = r->rule == DIFFERENCES ? (r->is_result ? member(r, index, r->n_ranks)
                                                           : member(r, index, turn + 1) - member(r, index, turn))
                    : r->rule == SHARES    ? share(r, weights, index, turn)
                    : r->rule == FACTORS   ? factor(r, index, turn)
                                           : extreme(r, index, turn);
        bits = encoded(r, value);
    }
    return r->flipped ? ~bits : bits;
}

FN void store(void *out, u64 index, u32 bytes, u64 bits) {
    switch (bytes) {
    case 1: ((unsigned char *)out)[index] = (unsigned char)bits; break;
    case 2: ((unsigned short *)out)[index] = (unsigned short)bits; break;
    case 4: ((u32 *)out)[index] = (u32)bits; break;
    default: ((u64 *)out)[index] = bits;
    }
}

FN int differs(const void *found, u64 index, u32 bytes, u64 bits) {
    switch (bytes) {
    case 1: return ((const unsigned char *)found)[index] != (unsigned char)bits;
    case 2: return ((const unsigned short *)found)[index] != (unsigned short)bits;
    case 4: return ((const u32 *)found)[index] != (u32)bits;
    default: return ((const u64 *)found)[index] != bits;
    }
}

#ifdef __CUDACC__

struct Outcome {
    u64 wrong;
    u64 first;
};

extern "C" __global__ void linkproof_fill(struct Recipe r, const u32 *weights, void *out, u64 count) {
    u64 stride = (u64)gridDim.x * blockDim.x;
    for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += stride)
        store(out, i, r.element_bytes, element(&r, weights, i));
}

extern "C" __global__ void linkproof_check(struct Recipe r, const u32 *weights, const void *found, u64 count,
                                           struct Outcome *outcome) {
    u64 stride = (u64)gridDim.x * blockDim.x;
    u64 wrong = 0, first = ~0ull;
    for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += stride) {
        if (differs(found, i, r.element_bytes, element(&r, weights, i))) {
            if (wrong == 0)
                first = i;
            wrong += 1;
        }
    }
    if (wrong) {
        atomicAdd(&outcome->wrong, wrong);
        atomicMin(&outcome->first, first);
    }
}

#else

// For the test: a recipe, the number of weights, the weights and a count come in; elements go out.
#include <stdio.h>
#include <stdlib.h>

int main(void) {
    struct Recipe r;
    u64 weight_count, count;
    while (fread(&r, sizeof r, 1, stdin) == 1 && fread(&weight_count, 8, 1, stdin) == 1) {
        u32 *weights = malloc(4 * weight_count + 4);
        if (!weights || fread(weights, 4, weight_count, stdin) != weight_count || fread(&count, 8, 1, stdin) != 1)
            return 1;
        void *out = malloc(count * r.element_bytes);
        if (!out)
            return 1;
        for (u64 i = 0; i < count; i++) {
            u64 bits = element(&r, weights, i);
            store(out, i, r.element_bytes, bits);
            if (differs(out, i, r.element_bytes, bits) || !differs(out, i, r.element_bytes, bits ^ 1))
                return 1;
        }
        fwrite(out, r.element_bytes, count, stdout);
        free(out);
        free(weights);
    }
    return 0;
}

#endif
