/* A sum gather as one would write it by hand in C: the yardstick for ours. 128 columns, vectors in registers, rows
 * asked for 16 edges ahead. Built with the machine's own compiler when `siafu bench gather` runs. */
#include <immintrin.h>
#include <stdint.h>

#define COLUMNS 128
#define AHEAD 16

#if defined(__AVX512F__)
typedef __m512 vector;
#define LANES 16
#define ZERO _mm512_setzero_ps()
#define ADD _mm512_add_ps
#define LOAD _mm512_loadu_ps
#define STORE _mm512_storeu_ps
#else
typedef __m256 vector;
#define LANES 8
#define ZERO _mm256_setzero_ps()
#define ADD _mm256_add_ps
#define LOAD _mm256_loadu_ps
#define STORE _mm256_storeu_ps
#endif
#define VECTORS (COLUMNS / LANES)

void gather(const int64_t *indptr, const int32_t *indices, const float *rows, float *out, int64_t first, int64_t last)
{
    for (int64_t i = first; i < last; i++) {
        vector sums[VECTORS];
        for (int v = 0; v < VECTORS; v++)
            sums[v] = ZERO;
        const int64_t end = indptr[i + 1];
        for (int64_t e = indptr[i]; e < end; e++) {
            const float *row = rows + (int64_t)indices[e] * COLUMNS;
            const int64_t soon = e + AHEAD < end ? e + AHEAD : end - 1;
            const char *next = (const char *)(rows + (int64_t)indices[soon] * COLUMNS);
            for (int b = 0; b < COLUMNS * 4; b += 64)
                __builtin_prefetch(next + b);
            for (int v = 0; v < VECTORS; v++)
                sums[v] = ADD(sums[v], LOAD(row + v * LANES));
        }
        for (int v = 0; v < VECTORS; v++)
            STORE(out + i * COLUMNS + v * LANES, sums[v]);
    }
}
