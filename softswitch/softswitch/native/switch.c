/* The switch around a program: its memory, packets, commands and events. Behind it, the unit has the program's own
   functions. See generate.py for what the unit defines before. */

#ifndef PACKET_ROOM
#define PACKET_ROOM 2048
#endif

enum { GOES_ON, EXITED, DROPPED };
enum { LEARNT = 1, LOGGED };

typedef struct packet {
    ss_packet head;
    uint8_t *room, *data;    /* the memory, and the packet as it was received */
    uint64_t capacity, size;
    context c;
} packet;

struct ss_switch {
    uint64_t mutex[16];      /* a pthread_mutex_t, all zero at first */
    uint64_t drop_port, seed, packets_in, packets_out, logging;
    uint64_t dropped[REASONS + 1], overruns[OVERRUNS + 1], errors[ERRORS + 1], turns[TURNS + 1];
    table tables[TABLES + 2];  /* the last two are multicast groups and clone sessions */
    profile profiles[PROFILES + 1];
    value_set value_sets[VALUE_SETS + 1];
    uint64_t *counters[COUNTERS + 1], *registers[REGISTERS + 1];
    ss_meter *meters[METERS + 1];
    twister random;
    packet *idle, *leaving;
    heap heap;
    uint8_t *scratch, *sent, *result;
    uint64_t scratch_room, sent_room, result_room;
    uint64_t *event, events, lost_events;
};

#define GROUPS TABLES
#define SESSIONS (TABLES + 1)

/* Whether the switch may have so many bytes more, if need be those of packets that nobody has. */
static int has_room(ss_switch *s, uint64_t bytes)
{
    if (heap_left(&s->heap) < bytes)
        for (packet *p = s->idle; p; p = s->idle) {
            s->idle = (packet *)p->head.next;
            release(&s->heap, p->room, HEADROOM + p->capacity);
            release(&s->heap, p, sizeof *p);
        }
    return heap_left(&s->heap) >= bytes;
}

/* A buffer of at least so many bytes; 0 if there is no memory for it, which is counted. */
static uint8_t *room_for(ss_switch *s, uint8_t **memory, uint64_t *have, uint64_t size)
{
    if (*have < size) {
        uint64_t room = size < 4096 ? 4096 : size + size / 4;
        if (!has_room(s, room - *have) || !extend(&s->heap, memory, have, room, 1)) {
            s->dropped[NO_ROOM]++;
            return 0;
        }
    }
    return *memory;
}

INLINE uint8_t *scratch(ss_switch *s, uint64_t size) { return room_for(s, &s->scratch, &s->scratch_room, size); }

/* A packet without memory yet, 0 if the program's packets may have no more. */
static packet *new_packet(ss_switch *s)
{
    return heap_left(&s->heap) < sizeof(packet) ? 0 : obtain(&s->heap, sizeof(packet));
}

/* Give a packet room for its bytes; return whether there is some. */
static int make_room(ss_switch *s, packet *p, uint64_t size)
{
    uint64_t before = p->room ? HEADROOM + p->capacity : 0;
    uint64_t capacity = size > PACKET_ROOM ? size : PACKET_ROOM;
    if (heap_left(&s->heap) + before < HEADROOM + capacity)
        return 0;
    release(&s->heap, p->room, before);
    /* Not obtain: nobody reads what is not written. */
    if (!(p->room = malloc(HEADROOM + capacity)))
        return 0;
    p->capacity = capacity;
    s->heap.used += HEADROOM + capacity;
    return 1;
}

static void give(ss_switch *s, packet *p);

/* A copy of some bytes; 0 if they are too many, or there is no memory for them, which is counted. */
static packet *take(ss_switch *s, const uint8_t *data, uint64_t size)
{
    packet *p = s->idle;
    if (size > MAX_PACKET_BYTES) {
        s->dropped[TOO_LONG]++;
        return 0;
    }
    if (p)
        s->idle = (packet *)p->head.next;
    else
        p = new_packet(s);
    if (p && (p->capacity < size || !p->room) && !make_room(s, p, size)) {
        give(s, p);
        p = 0;
    }
    if (!p) {
        s->dropped[NO_ROOM]++;
        return 0;
    }
    p->head.next = 0;
    p->data = p->room + HEADROOM;
    p->head.data = p->data;
    p->size = size;
    memcpy(p->data, data, size);
    return p;
}

static void give(ss_switch *s, packet *p)
{
#ifdef NO_POOL
    /* For sanitizers, which then see every use of what has been given back. */
    release(&s->heap, p->room, HEADROOM + p->capacity);
    release(&s->heap, p, sizeof *p);
    return;
#endif
    p->head.next = (ss_packet *)s->idle;
    s->idle = p;
}

static void give_all(ss_switch *s, ss_packet *list)
{
    while (list) {
        ss_packet *next = list->next;
        give(s, (packet *)list);
        list = next;
    }
}

static packet *copied(ss_switch *s, const packet *p)
{
    packet *q = take(s, p->data, p->size);
    if (q)
        q->c = p->c;
    return q;
}

/* Add an event: its kind, the words behind, which list or text, when, and the values. */
static void add_event(ss_switch *s, uint64_t kind, uint64_t number, uint64_t now_ns, const uint64_t *value,
                      uint32_t count)
{
    if (kind == LOGGED && !s->logging)
        return;
    if (!s->event)
        s->event = calloc(EVENT_WORDS, sizeof *s->event);
    if (!s->event || s->events + 4 + (uint64_t)count > EVENT_WORDS) {
        s->lost_events++;
        return;
    }
    uint64_t *to = s->event + s->events;
    to[0] = kind, to[1] = 2 + count, to[2] = number, to[3] = now_ns;
    memcpy(to + 4, value, count * sizeof *value);
    s->events += 4 + count;
}

uint64_t ss_events(ss_switch *s, uint64_t *out, uint64_t room)
{
    uint64_t count = 0;
    ss_lock(s);
    while (count < s->events && count + 2 + s->event[count + 1] <= room)
        count += 2 + s->event[count + 1];
    if (count) {
        memcpy(out, s->event, count * sizeof *out);
        memmove(s->event, s->event + count, (s->events - count) * sizeof *out);
        s->events -= count;
    }
    ss_unlock(s);
    return count;
}

void ss_lock(ss_switch *s) { pthread_mutex_lock(s->mutex); }
void ss_unlock(ss_switch *s) { pthread_mutex_unlock(s->mutex); }
void ss_drop(ss_switch *s, ss_packet *p) { give(s, (packet *)p); }

ss_switch *ss_new(uint64_t drop_port, uint64_t hash_seed)
{
    int missing = 0;
    ss_switch *s = calloc(1, sizeof *s);
    if (!s)
        return 0;
    s->drop_port = drop_port;
    s->heap.limit = ~0ull;
    s->seed = hash_seed;
    for (uint32_t i = 0; i < TABLES; i++) {
        s->tables[i].words = table_shapes[i].words;
        s->tables[i].ranges = table_shapes[i].ranges;
        s->tables[i].longest = table_shapes[i].longest;
        s->tables[i].actions = table_shapes[i].actions;
    }
    s->tables[GROUPS].words = s->tables[SESSIONS].words = 1;
    for (uint32_t i = 0; i < PROFILES; i++)
        s->profiles[i].actions = profile_shapes[i].actions;
    for (uint32_t i = 0; i < COUNTERS; i++)
        missing |= !(s->counters[i] = calloc(counter_sizes[i], 16));
    for (uint32_t i = 0; i < REGISTERS; i++)
        missing |= !(s->registers[i] = calloc(register_words[i], 8));
    for (uint32_t i = 0; i < METERS; i++)
        missing |= !(s->meters[i] = calloc(meter_sizes[i], sizeof(ss_meter)));
    if (missing) {
        ss_free(s);
        return 0;
    }
    return s;
}

void ss_free(ss_switch *s)
{
    for (uint32_t i = 0; i < TABLES + 2; i++)
        clear_table(&s->tables[i]);
    for (uint32_t i = 0; i < PROFILES; i++) {
        for (uint64_t j = 0; j < s->profiles[i].calls; j++)
            free(s->profiles[i].call[j]);
        for (uint64_t j = 0; j < s->profiles[i].choices; j++)
            free(s->profiles[i].choice[j]);
        free(s->profiles[i].call);
        free(s->profiles[i].choice);
    }
    for (uint32_t i = 0; i < VALUE_SETS; i++)
        free(s->value_sets[i].word);
    for (uint32_t i = 0; i < COUNTERS; i++)
        free(s->counters[i]);
    for (uint32_t i = 0; i < REGISTERS; i++)
        free(s->registers[i]);
    for (uint32_t i = 0; i < METERS; i++)
        free(s->meters[i]);
    if (s->leaving)
        give(s, s->leaving);
    for (packet *p = s->idle, *next; p; p = next) {
        next = (packet *)p->head.next;
        free(p->room);
        free(p);
    }
    free(s->scratch);
    free(s->sent);
    free(s->result);
    free(s->event);
    let_go(&s->heap);
    free(s);
}

void *ss_part(ss_switch *s, uint32_t part, uint64_t number, uint64_t index)
{
    switch (part) {
    case 0: return number < COUNTERS ? s->counters[number] : 0;
    case 1: return number < REGISTERS ? s->registers[number] : 0;
    case 2: return number < METERS ? s->meters[number] : 0;
    case 3: return number < TABLES ? state_of(&s->heap, &s->tables[number], index) : 0;
    case 4: return s->dropped;
    case 5: return s->overruns;
    case 6: return s->errors;
    case 7: return &s->packets_in;
    case 8: return &s->random;
    case 9: return &s->events;
    case 10: return &s->logging;
    case 12: return &s->heap.limit;
    case 11: return number < TABLES + 2 ? &s->tables[number].count : 0;
    }
    return 0;
}

/* ---------------------------------------------------------------------------------------------------- commands */

/* Set aside for the next change, too; more is given back. */
#define KEPT_RESERVE_BYTES (1 << 16)

enum { PUT = 1, REMOVE, DEFAULT, CALL, UNCALL, CHOOSE, UNCHOOSE, VALUES, METER, STORE };

/* What a change of so many words may need: entries as short as one can be, each with a group of its own. */
static uint64_t needed_by(uint64_t words)
{
    uint64_t most_entries = words / 7 + 1;
    return 4 * words * sizeof(uint64_t) + most_entries * (sizeof(entry) + sizeof(mask_group) + 32 * sizeof(slot));
}

uint32_t ss_reserve(ss_switch *s, uint64_t words)
{
    heap *h = &s->heap;
    uint64_t bytes = needed_by(words);
    uint32_t is_there;
    /* Mostly what is set aside is enough, and packets need not wait. They only ever change what is used, a little. */
    if (h->reserved >= bytes && entries_left(h) >= bytes && !h->is_cramped)
        return 1;
    ss_lock(s);
    is_there = !h->is_cramped && has_room(s, bytes + h->limit / 4);
    if (is_there && h->reserved < bytes) {
        let_go(h);
        h->reserve = malloc(bytes);
        h->reserved = h->reserve ? bytes : 0;
        is_there = h->reserve != 0;
    }
    ss_unlock(s);
    return is_there;
}

/* Apply one command, whose words are behind its kind and its length; return whether it is well formed, and there is
   memory for it. */
static int apply(ss_switch *s, uint64_t kind, const uint64_t *w, uint64_t count)
{
    if (count < 2)
        return 0;
    if (kind == PUT || kind == REMOVE || kind == DEFAULT) {
        if (w[0] >= TABLES + 2)
            return 0;
        table *t = &s->tables[w[0]];
        int own = w[0] < TABLES;
        const shape *shape = own ? &table_shapes[w[0]] : 0;
        uint32_t words = t->words, prefix = words + 2 * t->ranges;
        if (kind == DEFAULT) {
            /* table, action (all ones for none), state, prefix, arguments */
            entry *e = 0;
            if (count < 3 || !own)
                return 0;
            if (~w[1]) {
                if (w[1] >= shape->actions || count - 3 != prefix + (uint64_t)shape->arguments[w[1]])
                    return 0;
                if (!(e = new_entry(&s->heap, w + 3, count - 3)))
                    return 0;
                e->action = w[1];
                e->state = w[2] ? state_of(&s->heap, t, w[2] - 1) : 0;
            }
            free_entry(&s->heap, t->fallback);
            t->fallback = e;
            return 1;
        }
        if (kind == REMOVE) {
            /* table, handle, key, mask */
            if (count != 2 + 2ull * words)
                return 0;
            remove_entry(&s->heap, t, w + 2 + words, w + 2, w[1], s->seed);
            return 1;
        }
        /* table, handle, priority, action, state, mask, key, ranges, arguments */
        if (count < 5ull + words + prefix)
            return 0;
        uint64_t more = count - 5 - words - prefix;
        if (own && (w[3] >= shape->actions || more != shape->arguments[w[3]]))
            return 0;
        if (own && shape->profile && (w[count - 1] >= s->profiles[shape->profile - 1].choices
                                      || !s->profiles[shape->profile - 1].choice[w[count - 1]]))
            return 0;
        if (!own && (more < 1 || more - 1 < 2 * w[5 + words + prefix + (w[0] == SESSIONS ? 2 : 0)]))
            return 0;
        entry *e = new_entry(&s->heap, w + 5 + words, prefix + more);
        if (!e)
            return 0;
        e->handle = w[1], e->priority = w[2], e->action = w[3];
        e->state = w[4] && own ? state_of(&s->heap, t, w[4] - 1) : 0;
        if (put_entry(&s->heap, t, w + 5, e, s->seed))
            return 1;
        free_entry(&s->heap, e);
        return 0;
    }
    if (kind == VALUES) {
        /* set, parts, then four words for each part of each member */
        if (w[0] >= VALUE_SETS || w[1] == 0 || (count - 2) % (4 * w[1]))
            return 0;
        value_set *set = &s->value_sets[w[0]];
        uint64_t *word = obtain(&s->heap, (count - 1) * sizeof *w);
        if (!word)
            return 0;
        memcpy(word, w + 2, (count - 2) * sizeof *w);
        release(&s->heap, set->word, set->words * sizeof *w);
        set->word = word;
        set->words = count - 1;
        set->members = (count - 2) / 4 / w[1];
        return 1;
    }
    if (kind == METER) {
        /* table + 1 or 0, number of the meter, index or state, mode, rates and bursts */
        if (count != 8)
            return 0;
        if (w[0] ? w[0] > TABLES : w[1] >= METERS || w[2] >= meter_sizes[w[1]])
            return 0;
        ss_state *state = w[0] ? state_of(&s->heap, &s->tables[w[0] - 1], w[2]) : 0;
        if (w[0] && !state)
            return 0;
        set_meter(state ? &state->meter : s->meters[w[1]] + w[2], w + 3);
        return 1;
    }
    if (kind == STORE) {
        /* part (0 for counters, 1 for registers), number, first word, words */
        if (count < 3 || w[0] > 1 || w[1] >= (w[0] ? REGISTERS : COUNTERS))
            return 0;
        uint64_t size = w[0] ? register_words[w[1]] : 2 * counter_sizes[w[1]];
        if (w[2] > size || count - 3 > size - w[2])
            return 0;
        memcpy((w[0] ? s->registers : s->counters)[w[1]] + w[2], w + 3, (count - 3) * sizeof *w);
        return 1;
    }
    if (w[0] >= PROFILES)
        return 0;
    profile *o = &s->profiles[w[0]];
    if (kind == CALL || kind == UNCALL) {
        /* profile, number, action, arguments */
        const shape *shape = &profile_shapes[w[0]];
        entry **at = (entry **)item_of(&s->heap, &o->call, &o->calls, w[1]);
        if (!at || (kind == CALL && (count < 3 || w[2] >= shape->actions || count - 3 != shape->arguments[w[2]])))
            return 0;
        entry *e = kind == CALL ? new_entry(&s->heap, w + 3, count - 3) : 0;
        if (kind == CALL && !e)
            return 0;
        if (e)
            e->action = w[2];
        free_entry(&s->heap, *at);
        *at = e;
        return 1;
    }
    if (kind != CHOOSE && kind != UNCHOOSE)
        return 0;
    /* profile, number, calls */
    choice **at = (choice **)item_of(&s->heap, &o->choice, &o->choices, w[1]), *g = 0;
    if (!at)
        return 0;
    if (kind == CHOOSE) {
        for (uint64_t i = 2; i < count; i++)
            if (w[i] >= o->calls || !o->call[w[i]])
                return 0;
        if (!(g = obtain(&s->heap, sizeof *g + (count - 2) * sizeof *w)))
            return 0;
        g->count = count - 2;
        memcpy(g->call, w + 2, g->count * sizeof *w);
    }
    if (*at)
        release(&s->heap, *at, sizeof **at + (*at)->count * sizeof *w);
    *at = g;
    return 1;
}

uint64_t ss_apply(ss_switch *s, const uint64_t *words, uint64_t count)
{
    uint64_t at = 0, wrong = 0;
    ss_lock(s);
    while (at < count) {
        if (count - at < 2 || words[at + 1] > count - at - 2 || !apply(s, words[at], words + at + 2, words[at + 1])) {
            wrong = at + 1;
            break;
        }
        at += 2 + words[at + 1];
    }
    if (s->heap.reserved > KEPT_RESERVE_BYTES)
        let_go(&s->heap);
    ss_unlock(s);
    return wrong;
}

static const entry *list_of(const ss_switch *s, uint32_t number, uint64_t key)
{
    return find_exact(&s->tables[number], &key, 1, s->seed);
}

/* ------------------------------------------------------------------------------------------------------ packets */

static ss_packet *enter(ss_switch *s, packet *p, uint32_t port, uint64_t now_ns, uint32_t kind, uint32_t list,
                        const metadata *kept);

ss_packet *ss_ingress(ss_switch *s, uint32_t port, const uint8_t *data, uint32_t length, uint64_t now_ns)
{
    return enter(s, take(s, data, length), port, now_ns, 0, 0, 0);
}

uint64_t ss_process(ss_switch *s, uint32_t port, const uint8_t *data, uint32_t length, uint64_t now_ns,
                    const uint8_t **out)
{
    uint64_t used = 0;
    uint32_t passes = 0;
    ss_packet *waiting = ss_ingress(s, port, data, length, now_ns);
    while (waiting) {
        ss_packet *following = 0, **last = &following;
        if (++passes > RESUBMIT_LIMIT) {
            s->dropped[TOO_OFTEN]++;
            give_all(s, waiting);
            break;
        }
        for (ss_packet *q = waiting, *next; q; q = next) {
            ss_departure gone;
            next = q->next;
            if (!ss_egress(s, q, now_ns, now_ns, 0, 0, &gone, 1))
                continue;
            if (gone.data) {
                uint8_t *to = room_for(s, &s->result, &s->result_room, used + 8 + gone.length);
                uint32_t head[2] = {gone.port, gone.length};
                if (to) {
                    memcpy(to + used, head, 8);
                    memcpy(to + used + 8, gone.data, gone.length);
                    used += 8 + gone.length;
                }
            }
            *last = gone.requeue;
            while (*last)
                last = &(*last)->next;
        }
        waiting = following;
    }
    *out = s->result;
    return used;
}
