/* What shim.c and tcp.c have in common. */

typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef unsigned int uint32_t;
typedef unsigned long long uint64_t;
typedef long long int64_t;
typedef __SIZE_TYPE__ size_type;

void *calloc(size_type count, size_type size);
void *realloc(void *memory, size_type bytes);
void free(void *memory);
void *memcpy(void *to, const void *from, size_type bytes);
void *memmove(void *to, const void *from, size_type bytes);
void *memset(void *to, int byte, size_type bytes);
int memcmp(const void *one, const void *other, size_type bytes);

#define NULL ((void *)0)

static int64_t least(int64_t a, int64_t b) {
    return a < b ? a : b;
}

static int64_t most(int64_t a, int64_t b) {
    return a > b ? a : b;
}

static uint64_t number_at(const uint8_t *at, uint32_t bytes) {
    uint64_t number = 0;
    while (bytes--) number = number << 8 | *at++;
    return number;
}

static void put(uint8_t *at, uint64_t number, uint32_t bytes) {
    while (bytes--) {
        at[bytes] = number;
        number >>= 8;
    }
}
