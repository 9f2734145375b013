/* The two inner loops of matching, for machines that have a compiler: see kernel.py.
 *
 * A column is a filter's ranges: nothing in it exceeds what an event holds when they are met. Filters
 * have keys, which are added to a list; those that are odd, and whose ranges are met, are named by
 * number, for the caller to look at. All memory is the caller's, who holds the interpreter's lock.
 *
 * Of Python this needs one function of its stable interface, and no header.
 */
#include <stdint.h>

#define TOGETHER 64

typedef struct _object PyObject;
extern int PyList_Append(PyObject *list, PyObject *item);

int64_t version(void) { return 1; }

/* Keys lie all over the memory: they are sent for together, and added when they are there. */
static int give(PyObject *found, PyObject *const *keys, const int64_t *numbers, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        __builtin_prefetch(&keys[numbers[i]]);
    for (int64_t i = 0; i < count; i++)
        __builtin_prefetch(keys[numbers[i]], 1);
    for (int64_t i = 0; i < count; i++)
        if (PyList_Append(found, keys[numbers[i]]) < 0)
            return -1;
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
 * side. Returns how many are left to be looked at, or -1. */
int64_t through_block(const uint64_t *lines, const int64_t *picked, int64_t count, int64_t words,
                      const double *ends, const double *held, int64_t height, const uint8_t *odd,
                      PyObject *const *keys, PyObject *found, int64_t *left)
{
    int64_t open = 0, total = 0, taken[2 * TOGETHER];
    for (int64_t word = 0; word < words; word++) {
        uint64_t maybe = ~UINT64_C(0), surely = ~UINT64_C(0);
        for (int64_t i = 0; i < count; i++) {
            const uint64_t *line = lines + picked[i] * 2 * words;
            surely &= line[word];
            maybe &= line[words + word];
        }
        for (; maybe; maybe &= maybe - 1) {
            const int64_t bit = __builtin_ctzll(maybe), row = 64 * word + bit;
            if (!(surely >> bit & 1)) {
                const double *end = ends + row * height;
                int64_t line = 0;
                while (line < height && end[line] <= held[line])
                    line++;
                if (line < height)
                    continue;
                if (odd[row]) {
                    left[open++] = row;
                    continue;
                }
            }
            taken[total++] = row;
        }
        if (total >= TOGETHER) {
            if (give(found, keys, taken, total) < 0)
                return -1;
            total = 0;
        }
    }
    return give(found, keys, taken, total) < 0 ? -1 : open;
}
