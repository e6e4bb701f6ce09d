/* SPDX-License-Identifier: Apache-2.0
 *
 * The rank of a packet at its sender, as the P4 program computes it in a switch (ranking `deadline` and control Level),
 * for hosts in C and for the program in the kernel. `ranks.py` is the same in Python, and has the layout of rules.
 *
 * It needs the fixed-width types, and the numbers of the P4 program that it names in capitals.
 */

enum { RANK_LEVELS = 8 };

struct rank_rule {
    int64_t rank_at_zero, top;
    uint32_t offset_us, due_us, factor, alone_us, factor_shift, left_shift;
    uint32_t lowest[RANK_LEVELS]; /* the lowest key of each level, ascending */
    uint8_t queues[RANK_LEVELS];
    uint32_t levels; /* 0: all packets have the first queue */
    uint32_t unused;
};

/* What the sender knows of an EchelonFlow. Epochs have bit 8 set once they have been written. */
struct rank_state {
    uint64_t reference_us;
    uint32_t late_us;
    uint16_t memory, epoch;
};

/* The packets that keep their order among themselves. */
struct rank_stream {
    uint16_t epoch;
    uint8_t queue, unused;
};

struct rank_packet {
    uint64_t now_us;
    uint32_t left_bytes; /* of the flow, from this packet on */
    uint32_t age_us;     /* what the sender has been told of the iteration; afterwards, what it tells others */
    uint16_t memory;
    uint8_t epoch, last;
    uint8_t alone;  /* all that was sent before has arrived */
    uint8_t resent; /* it was sent before: its order is lost already */
    uint8_t queue;  /* the answer */
    uint8_t waits;  /* whether the flow should have a higher queue, and will when a packet is alone */
};

static inline int64_t rank_signed48(uint64_t number) {
    return (int64_t)(number << 16) >> 16;
}

static inline uint32_t rank_slack(uint64_t time_us, uint64_t now_us) {
    int64_t slack = rank_signed48(time_us - now_us), biased = slack + 0x80000000ll;
    return biased < 0 ? 0 : biased > 0xffffffffll ? 0xffffffffu : (uint32_t)biased;
}

static inline int rank_is_behind(uint16_t stored, uint8_t epoch) {
    return stored && (uint8_t)(epoch - (uint8_t)stored) >= STRAGGLER_FROM;
}

/* Return the key of the packet by which levels are chosen; the packet is not of an iteration before the newest. */
static inline uint32_t rank_key(const struct rank_rule *rule, struct rank_state *state, struct rank_packet *packet) {
    uint64_t now_us = packet->now_us, told_us = now_us - packet->age_us, tardiness, left;
    uint16_t stamped = 0x100 | packet->epoch;
    uint32_t key;
    int64_t rank, behind;
    if (state->epoch != stamped) {
        state->epoch = stamped;
        state->reference_us = packet->age_us ? told_us : now_us - rule->offset_us;
        if (rule->factor) {
            uint32_t late_us = state->late_us > rule->alone_us ? state->late_us - rule->alone_us : 0;
            uint64_t sum = state->memory + ((uint64_t)late_us * rule->factor >> (rule->factor_shift + MEMORY_SHIFT));
            sum -= sum >> 2;
            state->memory = sum > 0xffff ? 0xffff : sum;
            state->late_us = 0;
        }
    } else if (packet->age_us && rank_signed48(told_us - state->reference_us) < 0) {
        state->reference_us = told_us;
    }
    key = rank_slack(state->reference_us + rule->due_us, now_us);
    if (!rule->factor) return key;
    if (packet->memory > state->memory) state->memory = packet->memory;
    tardiness = (uint64_t)~key * rule->factor >> rule->factor_shift;
    left = (uint64_t)packet->left_bytes << LEFT_SHIFT_BIAS >> rule->left_shift;
    if (left > 0xffffffff) left = 0xffffffff;
    left = left * rule->factor >> rule->factor_shift;
    /* As `echelon.planning.rankings.deadline.deadline_rank`, in the integers of a switch. */
    rank = rank_signed48(
        tardiness + (uint64_t)rule->rank_at_zero + ((uint64_t)state->memory << MEMORY_SHIFT) - left);
    behind = rank_signed48((uint64_t)(rule->top - rank));
    return behind < 0 ? 0 : behind > 0xffffffffll ? 0xffffffffu : (uint32_t)behind;
}

/* Rank a packet. Only a packet that is alone, or the first of its flow in an iteration, goes to a higher queue than the
 * one before: it would overtake that. In a lower one it cannot, because queues are strict. */
static inline void rank(
    const struct rank_rule *rule, struct rank_state *state, struct rank_stream *stream, struct rank_packet *packet) {
    uint16_t stamped = 0x100 | packet->epoch;
    uint8_t wanted = rule->queues[0];
    uint32_t key, level;
    packet->waits = 0;
    packet->queue = 0;
    if (rule->levels) {
        if (rank_is_behind(state->epoch, packet->epoch)) return;
        packet->age_us = rule->factor ? packet->age_us : 0;
        key = rank_key(rule, state, packet);
        for (level = 1; level < RANK_LEVELS; level++)
            if (level < rule->levels && key >= rule->lowest[level]) wanted = rule->queues[level];
        if (rule->factor) {
            uint64_t age_us = packet->now_us - state->reference_us;
            int64_t late_us = rank_signed48(age_us - rule->offset_us);
            packet->age_us = age_us > 0xffffffff ? 0xffffffffu : age_us ? (uint32_t)age_us : 1;
            packet->memory = state->memory;
            if (packet->last && late_us > state->late_us)
                state->late_us = late_us > 0xffffffffll ? 0xffffffffu : (uint32_t)late_us;
        }
    }
    packet->queue = wanted;
    if (packet->resent || rank_is_behind(stream->epoch, packet->epoch)) return;
    if (stream->epoch == stamped && !packet->alone && wanted > stream->queue) {
        packet->queue = stream->queue;
        packet->waits = 1;
    }
    stream->epoch = stamped;
    stream->queue = packet->queue;
}
