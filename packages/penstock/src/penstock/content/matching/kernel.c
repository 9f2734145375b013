/* The two inner loops of matching, for machines that have a compiler: see kernel.py.
 *
 * A column is a filter's ranges: nothing in it exceeds what an event holds when they are met. Filters
 * have keys, which are added to a list; those that are odd, and whose ranges are met, are named by
 * number, for the caller to look at. All memory is the caller's, who holds the interpreter's lock.
 *
 * Of Python this needs one function of its stable interface, and no header.
 */
#include <stdint.h>

/* Columns of a cell, and words of a block's lines, that are gone through together. */
#define TOGETHER 64
#define WORDS 32
/* How many keys are on their way while one is added. */
#define AHEAD 32

typedef struct _object PyObject;
extern int PyList_Append(PyObject *list, PyObject *item);

int64_t version(void) { return 2; }

/* Keys lie all over the memory: each is sent for some time before it is added. */
static int give(PyObject *found, PyObject *const *keys, const int64_t *numbers, int64_t count)
{
    for (int64_t i = 0; i < count && i < 2 * AHEAD; i++)
        __builtin_prefetch(&keys[numbers[i]]);
    for (int64_t i = 0; i < count && i < AHEAD; i++)
        __builtin_prefetch(keys[numbers[i]], 1);
    for (int64_t i = 0; i < count; i++) {
        if (i + 2 * AHEAD < count)
            __builtin_prefetch(&keys[numbers[i + 2 * AHEAD]]);
        if (i + AHEAD < count)
            __builtin_prefetch(keys[numbers[i + AHEAD]], 1);
        if (PyList_Append(found, keys[numbers[i]]) < 0)
            return -1;
    }
    return 0;
}

/* Of one cell or several. Each is four numbers: where its columns are, line by line; how far apart
 * lines are; how many columns there are; and where the numbers of their filters are. Returns how
 * many are left to be looked at, or -1. */
int64_t through_cells(const int64_t *cells, int64_t count, const double *held, int64_t height,
                      const uint8_t *odd, PyObject *const *keys, PyObject *found, int64_t *left)
{
    int64_t open = 0;
    for (const int64_t *cell = cells; cell < cells + 4 * count; cell += 4) {
        const double *ends = (const double *)cell[0];
        const int64_t stride = cell[1], columns = cell[2];
        const int64_t *numbers = (const int64_t *)cell[3];
        for (int64_t start = 0; start < columns; start += TOGETHER) {
            int64_t met[TOGETHER], taken[TOGETHER], total = 0, some = 1;
            const int64_t here = columns - start < TOGETHER ? columns - start : TOGETHER;
            for (int64_t i = 0; i < here; i++)
                met[i] = 1;
            for (int64_t line = 0; line < height && some; line++) {
                const double *end = ends + line * stride + start;
                const double has = held[line];
                some = 0;
                for (int64_t i = 0; i < here; i++) {
                    met[i] &= end[i] <= has;
                    some |= met[i];
                }
            }
            for (int64_t i = 0; some && i < here; i++) {
                if (!met[i])
                    continue;
                if (odd[numbers[start + i]])
                    left[open++] = numbers[start + i];
                else
                    taken[total++] = numbers[start + i];
            }
            if (give(found, keys, taken, total) < 0)
                return -1;
        }
    }
    return open;
}

/* Of a block: the rows that all picked lines leave. Lines have `words` words for what is surely
 * true and as many for what may be; of the latter the columns decide, a filter's numbers side by
 * side, which are sent for while the others are found. Returns how many are left to be looked at, or
 * -1. */
int64_t through_block(const uint64_t *lines, const int64_t *picked, int64_t count, int64_t words,
                      const double *ends, const double *held, int64_t height, const uint8_t *odd,
                      PyObject *const *keys, PyObject *found, int64_t *left)
{
    int64_t open = 0, taken[64 * WORDS], unsure[64 * WORDS];
    uint64_t surely[WORDS], maybe[WORDS];
    for (int64_t start = 0; start < words; start += WORDS) {
        const int64_t here = words - start < WORDS ? words - start : WORDS;
        for (int64_t i = 0; i < here; i++)
            surely[i] = maybe[i] = ~UINT64_C(0);
        for (int64_t line = 0; line < count; line++) {
            const uint64_t *sure = lines + picked[line] * 2 * words + start, *may = sure + words;
            for (int64_t i = 0; i < here; i++) {
                surely[i] &= sure[i];
                maybe[i] &= may[i];
            }
        }
        int64_t total = 0, doubtful = 0;
        for (int64_t i = 0; i < here; i++) {
            const int64_t first = 64 * (start + i);
            for (uint64_t bits = maybe[i] & ~surely[i]; bits; bits &= bits - 1) {
                const int64_t row = first + __builtin_ctzll(bits);
                __builtin_prefetch(ends + row * height);
                __builtin_prefetch(ends + row * height + height - 1);
                unsure[doubtful++] = row;
            }
            for (uint64_t bits = maybe[i] & surely[i]; bits; bits &= bits - 1)
                taken[total++] = first + __builtin_ctzll(bits);
        }
        for (int64_t i = 0; i < doubtful; i++) {
            const double *end = ends + unsure[i] * height;
            int64_t line = 0;
            while (line < height && end[line] <= held[line])
                line++;
            if (line < height)
                continue;
            if (odd[unsure[i]])
                left[open++] = unsure[i];
            else
                taken[total++] = unsure[i];
        }
        if (give(found, keys, taken, total) < 0)
            return -1;
    }
    return open;
}
