/* The part of a program's unit that is the same for every program: bytes and bits, numbers of any width, hashes,
   tables, meters, random numbers, events and commands. Before it, the unit defines (see generate.py):
   KEY_WORDS, the longest key in words; HEADROOM, the bytes kept free in front of a packet; TABLES and the like. */

#define INLINE static inline __attribute__((unused))
#define EVENT_WORDS (1u << 16)
#define STATES_IN_CHUNK 1024

/* ------------------------------------------------------------------------------------------- bytes and bits */

INLINE uint64_t get1(const uint8_t *p) { return p[0]; }
INLINE uint64_t get2(const uint8_t *p) { return (uint64_t)p[0] << 8 | p[1]; }
INLINE uint64_t get3(const uint8_t *p) { return get2(p) << 8 | p[2]; }
INLINE uint64_t get4(const uint8_t *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | (uint32_t)p[3];
}
INLINE uint64_t get5(const uint8_t *p) { return get4(p) << 8 | p[4]; }
INLINE uint64_t get6(const uint8_t *p) { return get4(p) << 16 | get2(p + 4); }
INLINE uint64_t get7(const uint8_t *p) { return get4(p) << 24 | get3(p + 4); }
INLINE uint64_t get8(const uint8_t *p) { return get4(p) << 32 | get4(p + 4); }
INLINE void put1(uint8_t *p, uint64_t v) { p[0] = v; }
INLINE void put2(uint8_t *p, uint64_t v) { p[0] = v >> 8, p[1] = v; }
INLINE void put3(uint8_t *p, uint64_t v) { put2(p, v >> 8), p[2] = v; }
INLINE void put4(uint8_t *p, uint64_t v) { p[0] = v >> 24, p[1] = v >> 16, p[2] = v >> 8, p[3] = v; }
INLINE void put5(uint8_t *p, uint64_t v) { put4(p, v >> 8), p[4] = v; }
INLINE void put6(uint8_t *p, uint64_t v) { put4(p, v >> 16), put2(p + 4, v); }
INLINE void put7(uint8_t *p, uint64_t v) { put4(p, v >> 24), put3(p + 4, v); }
INLINE void put8(uint8_t *p, uint64_t v) { put4(p, v >> 32), put4(p + 4, v); }

/* Up to 64 bits, bit bits behind p. */
static uint64_t bits_at(const uint8_t *p, uint64_t bit, uint32_t width)
{
    uint64_t value = 0;
    for (uint64_t end = bit + width; bit < end;) {
        uint32_t here = 8 - bit % 8, take = end - bit < here ? end - bit : here;
        value = value << take | (p[bit / 8] >> (here - take) & ((1u << take) - 1));
        bit += take;
    }
    return value;
}

static void put_bits(uint8_t *p, uint64_t bit, uint32_t width, uint64_t value)
{
    while (width) {
        uint32_t here = 8 - bit % 8, take = width < here ? width : here;
        uint32_t mask = ((1u << take) - 1) << (here - take);
        width -= take;
        p[bit / 8] = (p[bit / 8] & ~mask) | ((uint32_t)(value >> width) << (here - take) & mask);
        bit += take;
    }
}

/* ------------------------------------------------------- numbers of n words, the least significant word first */

#define NEGATIVE(a, n) ((a)[(n) - 1] >> 63)

static void wide_get(uint64_t *to, uint32_t n, const uint8_t *p, uint64_t bit, uint32_t width)
{
    for (uint32_t i = 0; i < n; i++) {
        uint32_t some = width > 64 ? 64 : width;
        width -= some;
        to[i] = some ? bits_at(p, bit + width, some) : 0;
    }
}

static void wide_put(uint8_t *p, uint64_t bit, uint32_t width, const uint64_t *of)
{
    for (uint32_t i = 0; width; i++) {
        uint32_t some = width > 64 ? 64 : width;
        width -= some;
        put_bits(p, bit + width, some, of[i]);
    }
}

static void wide_extend(uint64_t *to, uint32_t n, const uint64_t *of, uint32_t m, int is_signed)
{
    uint64_t fill = is_signed && NEGATIVE(of, m) ? ~0ull : 0;
    for (uint32_t i = 0; i < n; i++)
        to[i] = i < m ? of[i] : fill;
}

/* Cut to width bits, and extend the highest of them if the number is signed. */
static void wide_cut(uint64_t *to, uint32_t n, uint32_t width, int is_signed)
{
    uint32_t word = width / 64, bit = width % 64;
    int negative = is_signed && to[(width - 1) / 64] >> (width - 1) % 64 & 1;
    if (bit && word < n) {
        uint64_t high = ~0ull << bit;
        to[word] = negative ? to[word] | high : to[word] & ~high;
        word++;
    }
    for (; word < n; word++)
        to[word] = negative ? ~0ull : 0;
}

static void wide_add(uint64_t *to, const uint64_t *a, const uint64_t *b, uint32_t n)
{
    uint64_t carry = 0;
    for (uint32_t i = 0; i < n; i++) {
        uint64_t sum = a[i] + b[i], more = sum + carry;
        carry = (sum < a[i]) | (more < sum);
        to[i] = more;
    }
}

static void wide_subtract(uint64_t *to, const uint64_t *a, const uint64_t *b, uint32_t n)
{
    uint64_t borrow = 0;
    for (uint32_t i = 0; i < n; i++) {
        uint64_t rest = a[i] - b[i], less = rest - borrow;
        borrow = (a[i] < b[i]) | (rest < borrow);
        to[i] = less;
    }
}

static void word_multiply(uint64_t to[2], uint64_t a, uint64_t b)
{
    uint64_t al = (uint32_t)a, ah = a >> 32, bl = (uint32_t)b, bh = b >> 32;
    uint64_t low = al * bl, one = ah * bl + (low >> 32), two = al * bh + (uint32_t)one;
    to[0] = two << 32 | (uint32_t)low;
    to[1] = ah * bh + (one >> 32) + (two >> 32);
}

static void wide_multiply(uint64_t *to, const uint64_t *a, const uint64_t *b, uint32_t n)
{
    memset(to, 0, n * sizeof *to);
    for (uint32_t i = 0; i < n; i++) {
        uint64_t carry = 0;
        for (uint32_t j = 0; i + j < n; j++) {
            uint64_t part[2], old = to[i + j];
            word_multiply(part, a[i], b[j]);
            uint64_t sum = old + part[0], more = sum + carry;
            carry = part[1] + (sum < old) + (more < sum);
            to[i + j] = more;
        }
    }
}

static void wide_left(uint64_t *to, const uint64_t *a, uint64_t count, uint32_t n)
{
    uint64_t word = count / 64, bit = count % 64;
    for (uint32_t i = n; i-- > 0;) {
        uint64_t high = i >= word ? a[i - word] : 0, low = i >= word + 1 ? a[i - word - 1] : 0;
        to[i] = bit ? high << bit | low >> (64 - bit) : high;
    }
}

static void wide_right(uint64_t *to, const uint64_t *a, uint64_t count, uint32_t n, int is_signed)
{
    uint64_t word = count / 64, bit = count % 64, fill = is_signed && NEGATIVE(a, n) ? ~0ull : 0;
    for (uint32_t i = 0; i < n; i++) {
        uint64_t low = word < n - i ? a[i + word] : fill, high = word + 1 < n - i ? a[i + word + 1] : fill;
        to[i] = bit ? low >> bit | high << (64 - bit) : low;
    }
}

/* -1, 0 or 1, as a is below, equal to or above b; both signed. */
static int wide_compare(const uint64_t *a, const uint64_t *b, uint32_t n)
{
    if (NEGATIVE(a, n) != NEGATIVE(b, n))
        return NEGATIVE(a, n) ? -1 : 1;
    for (uint32_t i = n; i-- > 0;)
        if (a[i] != b[i])
            return a[i] < b[i] ? -1 : 1;
    return 0;
}

/* The quotient and the remainder of natural numbers, both 0 where P4 leaves them undefined. */
static void wide_divide(uint64_t *quotient, uint64_t *rest, const uint64_t *a, const uint64_t *b, uint32_t n)
{
    int none = 1;
    for (uint32_t i = 0; i < n; i++)
        none &= b[i] == 0;
    memset(quotient, 0, n * sizeof *quotient);
    memset(rest, 0, n * sizeof *rest);
    if (none || NEGATIVE(a, n) || NEGATIVE(b, n))
        return;
    for (uint64_t bit = 64ull * n; bit-- > 0;) {
        wide_left(rest, rest, 1, n);
        rest[0] |= a[bit / 64] >> bit % 64 & 1;
        if (wide_compare(rest, b, n) >= 0) {
            wide_subtract(rest, rest, b, n);
            quotient[bit / 64] |= 1ull << bit % 64;
        }
    }
}

INLINE uint64_t shift_left(uint64_t a, uint64_t count) { return count < 64 ? a << count : 0; }
INLINE uint64_t shift_right(uint64_t a, uint64_t count) { return count < 64 ? a >> count : 0; }
INLINE uint64_t shift_signed(uint64_t a, uint64_t count)
{
    return (uint64_t)((int64_t)a >> (count < 63 ? count : 63));
}
INLINE uint64_t divide(uint64_t a, uint64_t b) { return b ? a / b : 0; }
INLINE uint64_t modulo(uint64_t a, uint64_t b) { return b ? a % b : 0; }

/* ------------------------------------------------------------------------------------------------------ hashes */

static uint64_t crc_reflected(const uint64_t *table, uint64_t value, uint64_t final, const uint8_t *p, uint64_t size)
{
    for (uint64_t i = 0; i < size; i++)
        value = value >> 8 ^ table[(value ^ p[i]) & 255];
    return value ^ final;
}

static uint64_t crc_plain(const uint64_t *table, uint32_t width, uint64_t value, uint64_t final, const uint8_t *p,
                          uint64_t size)
{
    uint64_t full = ~0ull >> (64 - width);
    for (uint64_t i = 0; i < size; i++)
        value = (value << 8 & full) ^ table[(value >> (width - 8) ^ p[i]) & 255];
    return value ^ final;
}

/* Add the 16-bit words of some bytes to an Internet checksum (RFC 1071); sum_finish completes it. */
INLINE uint64_t sum_words(uint64_t sum, const uint8_t *p, uint64_t size)
{
    for (; size >= 4; p += 4, size -= 4)
        sum += get4(p);
    if (size >= 2)
        sum += get2(p), p += 2, size -= 2;
    return size ? sum + (uint64_t)(p[0] << 8) : sum;
}

INLINE uint64_t sum_finish(uint64_t sum)
{
    sum = (sum & 0xffffffff) + (sum >> 32);
    sum = (sum & 0xffff) + (sum >> 16 & 0xffff) + (sum >> 32);
    sum = (sum & 0xffff) + (sum >> 16);
    return ~(sum + (sum >> 16)) & 0xffff;
}

static uint64_t xor_words(const uint8_t *p, uint64_t size, uint32_t width)
{
    uint64_t value = 0;
    for (uint64_t i = 0; i < size; i++)
        value ^= (uint64_t)p[i] << 8 * (width - 1 - i % width);
    return value;
}

static uint64_t first_bytes(const uint8_t *p, uint64_t size)
{
    uint64_t value = 0;
    for (uint64_t i = 0; i < size && i < 8; i++)
        value = value << 8 | p[i];
    return value;
}

#define XXH_1 0x9E3779B185EBCA87ull
#define XXH_2 0xC2B2AE3D27D4EB4Full
#define XXH_3 0x165667B19E3779F9ull
#define XXH_4 0x85EBCA77C2B2AE63ull
#define XXH_5 0x27D4EB2F165667C5ull
#define TURNED(v, n) ((v) << (n) | (v) >> (64 - (n)))

INLINE uint64_t little(const uint8_t *p, uint32_t size)
{
    uint64_t value = 0;
    while (size-- > 0)
        value = value << 8 | p[size];
    return value;
}

INLINE uint64_t xxh_round(uint64_t lane, uint64_t word)
{
    lane += word * XXH_2;
    return TURNED(lane, 31) * XXH_1;
}

/* XXH64 with seed 0 (doc/xxhash_spec.md of Cyan4973/xxHash). */
static uint64_t xxh64(const uint8_t *p, uint64_t size)
{
    uint64_t value = XXH_5, left = size;
    if (left >= 32) {
        uint64_t lanes[4] = {XXH_1 + XXH_2, XXH_2, 0, 0 - XXH_1};
        for (; left >= 32; p += 32, left -= 32)
            for (int i = 0; i < 4; i++)
                lanes[i] = xxh_round(lanes[i], little(p + 8 * i, 8));
        value = TURNED(lanes[0], 1) + TURNED(lanes[1], 7) + TURNED(lanes[2], 12) + TURNED(lanes[3], 18);
        for (int i = 0; i < 4; i++)
            value = (value ^ xxh_round(0, lanes[i])) * XXH_1 + XXH_4;
    }
    value += size;
    for (; left >= 8; p += 8, left -= 8)
        value ^= xxh_round(0, little(p, 8)), value = TURNED(value, 27) * XXH_1 + XXH_4;
    if (left >= 4)
        value ^= little(p, 4) * XXH_1, value = TURNED(value, 23) * XXH_2 + XXH_3, p += 4, left -= 4;
    for (; left; p++, left--)
        value ^= *p * XXH_5, value = TURNED(value, 11) * XXH_1;
    value = (value ^ value >> 33) * XXH_2;
    value = (value ^ value >> 29) * XXH_3;
    return value ^ value >> 32;
}

/* Bits that a calculation covers, put one behind the other; room for them is there. */
typedef struct { uint8_t *p; uint64_t bit; } bit_string;

static void add_bits(bit_string *to, uint64_t value, uint32_t width)
{
    if (to->bit % 8 == 0)
        to->p[to->bit / 8] = 0;
    for (uint64_t at = (to->bit + 8) / 8; at <= (to->bit + width) / 8; at++)
        to->p[at] = 0;
    put_bits(to->p, to->bit, width, value);
    to->bit += width;
}

static void add_wide(bit_string *to, const uint64_t *value, uint32_t width)
{
    for (uint32_t word = (width + 63) / 64; word-- > 0;) {
        uint32_t some = width - 64 * word;
        add_bits(to, value[word], some);
        width -= some;
    }
}

static void add_bytes(bit_string *to, const uint8_t *p, uint64_t size)
{
    if (to->bit % 8) {
        for (uint64_t i = 0; i < size; i++)
            add_bits(to, p[i], 8);
        return;
    }
    memcpy(to->p + to->bit / 8, p, size);
    to->bit += 8 * size;
}

/* ------------------------------------------------------------------------------------------------------ tables */

/* The memory of a switch beside its arrays, in bytes: of packets, entries and buffers, and what they may become. A
   change of entries first sets aside what it may need at most, so that it is refused before it has begun. */
typedef struct {
    uint64_t used, limit, reserved;
    void *reserve;
    uint32_t is_cramped;     /* whether slots could not become more */
} heap;

INLINE uint64_t heap_left(const heap *h) { return h->used < h->limit ? h->limit - h->used : 0; }
/* What is left to entries: all but a quarter, which is for packets. */
INLINE uint64_t entries_left(const heap *h) { return heap_left(h) > h->limit / 4 ? heap_left(h) - h->limit / 4 : 0; }

static void let_go(heap *h)
{
    free(h->reserve);
    h->reserve = 0;
    h->reserved = 0;
}

/* Memory of zeros; 0 if there is none, not even what is set aside. */
static void *obtain(heap *h, uint64_t bytes)
{
    void *memory = calloc(1, bytes);
    if (!memory && h->reserve) {
        let_go(h);
        memory = calloc(1, bytes);
    }
    h->used += memory ? bytes : 0;
    return memory;
}

static void release(heap *h, void *memory, uint64_t bytes)
{
    h->used -= memory ? bytes : 0;
    free(memory);
}

/* Give a list room for more items, the new ones zero; return whether there is memory. */
static int extend(heap *h, void *list, uint64_t *room, uint64_t more, uint64_t size)
{
    void **items = list, *longer = obtain(h, more * size);
    if (!longer)
        return 0;
    if (*room)
        memcpy(longer, *items, *room * size);
    release(h, *items, *room * size);
    *items = longer;
    *room = more;
    return 1;
}

/* An entry, with its words behind it: key, (low, high) of each range, then the arguments of its action. */
typedef struct entry {
    struct entry *next;      /* the next best one of the same mask and key */
    ss_state *state;
    uint64_t handle, hash;
    uint32_t priority, action, words;
    uint64_t word[];
} entry;

/* A place for the entries of a key, with a part of their hash, which saves most looks at entries of other keys. */
typedef struct { entry *first; uint64_t tag; } slot;

/* A power of two of slots, which are probed one after another. */
typedef struct { slot *slot; uint32_t bits; } slots;

/* The entries of one mask, by their masked key. If now has become too small, its slots are the old ones, and each
   further entry moves some of them into new ones, so that no change takes long. */
typedef struct {
    slots now, old;
    uint64_t moved;          /* how many of the old slots are empty */
    uint32_t used, compared;
    uint32_t priority;       /* not below that of any entry here, nor is handle above that of the best */
    uint64_t handle;
    uint64_t mask[KEY_WORDS];
} mask_group;

/* A table. Groups are ordered by how many bits they compare if longest is set, else with the best entry first. */
typedef struct {
    uint32_t words, ranges, actions, longest;
    uint32_t groups;
    uint64_t room;
    mask_group **group;
    uint64_t count;
    entry *fallback;
    ss_state **chunk;
    uint64_t chunks;
} table;

typedef struct { uint64_t count, call[]; } choice;
typedef struct { entry **call; uint64_t calls; choice **choice; uint64_t choices; uint32_t actions; } profile;

#define BETTER(p, h, q, k) ((p) > (q) || ((p) == (q) && (h) < (k)))

INLINE uint64_t hash_words(const uint64_t *key, uint32_t words, uint64_t seed)
{
    uint64_t hash = seed;
    for (uint32_t i = 0; i < words; i++) {
        hash = (hash ^ key[i]) * 0x9E3779B97F4A7C15ull;
        hash ^= hash >> 32;
    }
    return hash * 0xD6E8FEB86659FD93ull;
}

/* In an old slot, whose entries are in the new ones: the same in each library that shares the memory. */
#define MOVED_AWAY ((entry *)8)

INLINE slot *slot_of(const slots *in, const uint64_t *key, uint32_t words, uint64_t hash)
{
    uint64_t last = (1ull << in->bits) - 1;
    for (uint64_t at = hash >> (64 - in->bits);; at = (at + 1) & last) {
        slot *found = in->slot + at;
        if (!found->first)
            return 0;
        if (found->tag == hash && found->first != MOVED_AWAY) {
            uint64_t differ = 0;
            for (uint32_t i = 0; i < words; i++)
                differ |= found->first->word[i] ^ key[i];
            if (!differ)
                return found;
        }
    }
}

INLINE slot *slot_in(const mask_group *g, const uint64_t *key, uint32_t words, uint64_t hash)
{
    slot *found = slot_of(&g->now, key, words, hash);
    return found || !g->old.slot ? found : slot_of(&g->old, key, words, hash);
}

INLINE entry *find_key(const mask_group *g, const uint64_t *key, uint32_t words, uint64_t seed)
{
    const slot *found = slot_in(g, key, words, hash_words(key, words, seed));
    return found ? found->first : 0;
}

/* The entry of a table whose keys are all exact. */
INLINE entry *find_exact(const table *t, const uint64_t *key, uint32_t words, uint64_t seed)
{
    return t->groups ? find_key(t->group[0], key, words, seed) : 0;
}

INLINE entry *find_masked(const mask_group *g, const uint64_t *key, uint32_t words, uint64_t seed)
{
    uint64_t masked[KEY_WORDS];
    for (uint32_t i = 0; i < words; i++)
        masked[i] = key[i] & g->mask[i];
    return find_key(g, masked, words, seed);
}

/* The entry of the longest prefix. */
INLINE entry *find_longest(const table *t, const uint64_t *key, uint32_t words, uint64_t seed)
{
    for (uint32_t i = 0; i < t->groups; i++) {
        entry *e = find_masked(t->group[i], key, words, seed);
        if (e)
            return e;
    }
    return 0;
}

/* The best entry whose masked key and ranges fit. */
static entry *find_best(const table *t, const uint64_t *key, uint32_t words, const uint64_t *value, uint32_t ranges,
                        uint64_t seed)
{
    entry *best = 0;
    for (uint32_t i = 0; i < t->groups; i++) {
        const mask_group *g = t->group[i];
        if (best && !BETTER(g->priority, g->handle, best->priority, best->handle))
            break;
        for (entry *e = find_masked(g, key, words, seed); e; e = e->next) {
            uint32_t r = 0;
            while (r < ranges && e->word[words + 2 * r] <= value[r] && value[r] <= e->word[words + 2 * r + 1])
                r++;
            if (r < ranges)
                continue;
            if (!best || BETTER(e->priority, e->handle, best->priority, best->handle))
                best = e;
            break;
        }
    }
    return best;
}

static uint32_t bit_count(const uint64_t *mask, uint32_t words)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < words; i++)
        for (uint64_t left = mask[i]; left; left &= left - 1)
            count++;
    return count;
}

static void order_groups(table *t)
{
    for (uint32_t i = 1; i < t->groups; i++) {
        mask_group *g = t->group[i];
        uint32_t at = i;
        for (; at > 0; at--) {
            mask_group *o = t->group[at - 1];
            if (t->longest ? g->compared <= o->compared
                           : !BETTER(g->priority, g->handle, o->priority, o->handle))
                break;
            t->group[at] = o;
        }
        t->group[at] = g;
    }
}

static void place(slots *in, slot new)
{
    uint64_t last = (1ull << in->bits) - 1, at = new.tag >> (64 - in->bits);
    while (in->slot[at].first)
        at = (at + 1) & last;
    in->slot[at] = new;
}

static int make_slots(heap *h, slots *of, uint32_t bits)
{
    of->bits = bits;
    of->slot = obtain(h, sizeof *of->slot << bits);
    return of->slot != 0;
}

static void free_slots(heap *h, slots *of)
{
    release(h, of->slot, sizeof *of->slot << of->bits);
    of->slot = 0;
}

/* Move some old slots to their new places: enough of them that they have all moved before the new ones are full. */
static void move_slots(heap *h, mask_group *g)
{
    for (int i = 0; i < 32 && g->old.slot; i++) {
        slot *from = g->old.slot + g->moved;
        if (from->first && from->first != MOVED_AWAY) {
            place(&g->now, *from);
            from->first = MOVED_AWAY;
        }
        if (++g->moved >> g->old.bits)
            free_slots(h, &g->old);
    }
}

static mask_group *group_of(heap *h, table *t, const uint64_t *mask, int make)
{
    for (uint32_t i = 0; i < t->groups; i++)
        if (!memcmp(t->group[i]->mask, mask, t->words * sizeof *mask))
            return t->group[i];
    if (!make)
        return 0;
    if (t->groups == t->room && !extend(h, &t->group, &t->room, t->room ? 2 * t->room : 4, sizeof *t->group))
        return 0;
    mask_group *g = obtain(h, sizeof *g);
    if (!g)
        return 0;
    if (!make_slots(h, &g->now, 4)) {
        release(h, g, sizeof *g);
        return 0;
    }
    memcpy(g->mask, mask, t->words * sizeof *mask);
    g->handle = ~0ull;
    g->compared = bit_count(mask, t->words);
    t->group[t->groups++] = g;
    return g;
}

INLINE uint64_t entry_bytes(uint64_t words) { return sizeof(entry) + words * sizeof(uint64_t); }

static entry *new_entry(heap *h, const uint64_t *words, uint32_t count)
{
    entry *e = obtain(h, entry_bytes(count));
    if (!e)
        return 0;
    memcpy(e->word, words, count * sizeof *words);
    e->words = count;
    return e;
}

static void free_entry(heap *h, entry *e)
{
    if (e)
        release(h, e, entry_bytes(e->words));
}

/* Add an entry, in place of the one with the same key and handle if there is one; return whether there is memory. */
static int put_entry(heap *h, table *t, const uint64_t *mask, entry *e, uint64_t seed)
{
    mask_group *g = group_of(h, t, mask, 1);
    if (!g)
        return 0;
    e->hash = hash_words(e->word, t->words, seed);
    slot *found = slot_in(g, e->word, t->words, e->hash);
    if (!found) {
        if (2ull * (g->used + 1ull) >> g->now.bits && !g->old.slot) {
            slots larger;
            if (entries_left(h) >= sizeof(slot) << (g->now.bits + 1) && make_slots(h, &larger, g->now.bits + 1)) {
                g->old = g->now;
                g->moved = 0;
                g->now = larger;
            } else {
                /* Half of them are left for what is reserved already. */
                h->is_cramped = 1;
                if (g->used + 1ull >> g->now.bits)
                    return 0;
            }
        }
        g->used++;
        place(&g->now, (slot){e, e->hash});
        t->count++;
    } else {
        entry **link = &found->first;
        while (*link && BETTER((*link)->priority, (*link)->handle, e->priority, e->handle))
            link = &(*link)->next;
        entry *old = *link && (*link)->handle == e->handle ? *link : 0;
        e->next = old ? old->next : *link;
        *link = e;
        t->count += !old;
        free_entry(h, old);
    }
    move_slots(h, g);
    int fresh = g->handle == ~0ull;
    if (fresh || BETTER(e->priority, e->handle, g->priority, g->handle)) {
        g->priority = e->priority, g->handle = e->handle;
        if (fresh || !t->longest)
            order_groups(t);
    }
    return 1;
}

/* Move back what probing would no longer reach behind an empty slot. */
static void close_gap(slots *in, uint64_t gap)
{
    uint64_t last = (1ull << in->bits) - 1;
    for (uint64_t i = (gap + 1) & last; in->slot[i].first; i = (i + 1) & last) {
        uint64_t home = in->slot[i].tag >> (64 - in->bits);
        if (((i - home) & last) >= ((i - gap) & last)) {
            in->slot[gap] = in->slot[i];
            in->slot[i].first = 0;
            gap = i;
        }
    }
}

static void clear_slots(slots *of)
{
    for (uint64_t at = 0; of->slot && at >> of->bits == 0; at++)
        for (entry *e = of->slot[at].first, *next; e && e != MOVED_AWAY; e = next) {
            next = e->next;
            free(e);
        }
    free(of->slot);
}

static void remove_entry(heap *h, table *t, const uint64_t *mask, const uint64_t *key, uint64_t handle, uint64_t seed)
{
    mask_group *g = group_of(h, t, mask, 0);
    if (!g)
        return;
    slot *found = slot_in(g, key, t->words, hash_words(key, t->words, seed));
    entry **link = found ? &found->first : 0;
    while (link && *link && (*link)->handle != handle)
        link = &(*link)->next;
    entry *e = link ? *link : 0;
    if (!e)
        return;
    *link = e->next;
    free_entry(h, e);
    h->is_cramped = 0;
    t->count--;
    if (found->first)
        return;
    if (found >= g->now.slot && found < g->now.slot + (1ull << g->now.bits))
        close_gap(&g->now, found - g->now.slot);
    else
        found->first = MOVED_AWAY;
    if (--g->used)
        return;
    for (uint32_t i = 0; i < t->groups; i++)
        if (t->group[i] == g) {
            memmove(t->group + i, t->group + i + 1, (--t->groups - i) * sizeof *t->group);
            break;
        }
    /* Nothing is in them any more. */
    free_slots(h, &g->now);
    free_slots(h, &g->old);
    release(h, g, sizeof *g);
}

static void clear_table(table *t)
{
    for (uint32_t i = 0; i < t->groups; i++) {
        clear_slots(&t->group[i]->now);
        clear_slots(&t->group[i]->old);
        free(t->group[i]);
    }
    for (uint64_t i = 0; i < t->chunks; i++)
        free(t->chunk[i]);
    free(t->chunk);
    free(t->group);
    free(t->fallback);
}

/* The state of number in a table, whose memory stays where it is; 0 without memory for it. */
static ss_state *state_of(heap *h, table *t, uint64_t number)
{
    uint64_t chunk = number / STATES_IN_CHUNK;
    if (chunk >> 32)
        return 0;
    if (chunk >= t->chunks) {
        uint64_t more = 2 * t->chunks > chunk ? 2 * t->chunks : chunk + 1;
        if (heap_left(h) < more * sizeof *t->chunk || !extend(h, &t->chunk, &t->chunks, more, sizeof *t->chunk))
            return 0;
    }
    if (!t->chunk[chunk]) {
        uint64_t bytes = STATES_IN_CHUNK * sizeof(ss_state);
        if (heap_left(h) < bytes || !(t->chunk[chunk] = obtain(h, bytes)))
            return 0;
    }
    return &t->chunk[chunk][number % STATES_IN_CHUNK];
}

/* Room for item number in a list of pointers; 0 without memory for it. */
static void **item_of(heap *h, void *list, uint64_t *count, uint64_t number)
{
    void ***of = list;
    if (number >> 32)
        return 0;
    if (number >= *count) {
        uint64_t more = 2 * *count > number ? 2 * *count : number + 1;
        if (!extend(h, of, count, more, sizeof **of))
            return 0;
    }
    return *of + number;
}

/* ------------------------------------------------------------------------------------------------------ meters */

INLINE int less(const uint64_t *a, const uint64_t *b) { return a[1] < b[1] || (a[1] == b[1] && a[0] < b[0]); }

static void fill_bucket(uint64_t *bucket, const uint64_t *more, uint64_t burst)
{
    uint64_t full[2];
    word_multiply(full, burst, 1000000000);
    wide_add(bucket, bucket, more, 2);
    if (less(full, bucket))
        bucket[0] = full[0], bucket[1] = full[1];
}

/* The colour of a packet: 0 green, 1 yellow, 2 red. */
static uint64_t meter_colour(ss_meter *m, uint64_t amount, uint64_t now_ns)
{
    uint64_t needed[2], more[2];
    if (!m->mode)
        return 0;
    uint64_t elapsed = m->met && now_ns > m->last_ns ? now_ns - m->last_ns : 0;
    if (!m->met || now_ns > m->last_ns)
        m->last_ns = now_ns;
    m->met = 1;
    word_multiply(needed, amount, 1000000000);
    word_multiply(more, elapsed, m->committed_rate);
    if (m->mode == 1) {
        fill_bucket(m->committed, more, m->committed_burst);
        word_multiply(more, elapsed, m->peak_rate);
        fill_bucket(m->peak, more, m->peak_burst);
        if (less(m->peak, needed))
            return 2;
        wide_subtract(m->peak, m->peak, needed, 2);
        if (less(m->committed, needed))
            return 1;
        wide_subtract(m->committed, m->committed, needed, 2);
        return 0;
    }
    wide_add(more, more, m->committed, 2);
    memset(m->committed, 0, sizeof m->committed);
    fill_bucket(m->committed, more, m->committed_burst);
    wide_subtract(more, more, m->committed, 2);
    fill_bucket(m->peak, more, m->peak_burst);
    if (!less(m->committed, needed)) {
        wide_subtract(m->committed, m->committed, needed, 2);
        return 0;
    }
    if (less(m->peak, needed))
        return 2;
    wide_subtract(m->peak, m->peak, needed, 2);
    return 1;
}

static void set_meter(ss_meter *m, const uint64_t *words)
{
    memset(m, 0, sizeof *m);
    m->mode = words[0];
    m->committed_rate = words[1], m->committed_burst = words[2];
    m->peak_rate = words[3], m->peak_burst = words[4];
    word_multiply(m->committed, m->committed_burst, 1000000000);
    word_multiply(m->peak, m->peak_burst, 1000000000);
}

/* ---------------------------------------------------------------------------------------------- random numbers */

/* MT19937 (Matsumoto and Nishimura, 1998), with the state and the use of its words that Python's random has. */
typedef struct { uint32_t word[624], at; } twister;

static uint32_t next_word(twister *r)
{
    if (r->at >= 624) {
        for (uint32_t i = 0; i < 624; i++) {
            uint32_t y = (r->word[i] & 0x80000000u) | (r->word[(i + 1) % 624] & 0x7fffffffu);
            r->word[i] = r->word[(i + 397) % 624] ^ y >> 1 ^ (y & 1 ? 0x9908b0dfu : 0);
        }
        r->at = 0;
    }
    uint32_t y = r->word[r->at++];
    y ^= y >> 11;
    y ^= y << 7 & 0x9d2c5680u;
    y ^= y << 15 & 0xefc60000u;
    return y ^ y >> 18;
}

/* A number from low to high, both included. */
static uint64_t draw(twister *r, uint64_t low, uint64_t high)
{
    uint64_t count = high - low + 1, value;
    uint32_t bits = 0;
    if (!count) {
        for (;;) {
            value = next_word(r);
            value |= (uint64_t)next_word(r) << 32;
            if (!(next_word(r) >> 31))
                return value;
        }
    }
    while (bits < 64 && count >> bits)
        bits++;
    do {
        if (bits <= 32) {
            value = next_word(r) >> (32 - bits);
        } else {
            value = next_word(r);
            value |= (uint64_t)(next_word(r) >> (64 - bits)) << 32;
        }
    } while (value >= count);
    return low + value;
}

/* -------------------------------------------------------------------------------------------------- value sets */

/* Members of a value set: (value, mask, low, high) for each component. */
typedef struct { uint64_t *word, members, words; } value_set;

static int in_set(const value_set *set, const uint64_t *key, const uint64_t *mask, uint32_t parts)
{
    for (uint64_t i = 0; i < set->members; i++) {
        const uint64_t *w = set->word + 4 * parts * i;
        uint32_t part = 0;
        for (; part < parts; part++, w += 4) {
            uint64_t value = key[part] & mask[part];
            if (((w[0] ^ key[part]) & w[1] & mask[part]) || value < w[2] || value > w[3])
                break;
        }
        if (part == parts)
            return 1;
    }
    return 0;
}
