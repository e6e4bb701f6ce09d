/* Names and comments of frames.py, newreno.py, sender.py and stack.py explain this file. Names and comments there that
   concern arithmetic hold here, too: numbers on the wire are modulo 2^32, positions are counted without end.

   A connection is one structure for both ends. It goes when it has ended. Alarms and Python know it by a number, which
   nothing else gets later, so that what comes too late finds nothing. */

#include "basics.h"
#include "network.h"
#include "tcp.h"

enum { FIN = 0x01, SYN = 0x02, RST = 0x04, PSH = 0x08, ACK = 0x10, ECE = 0x40, CWR = 0x80 };
enum { NOT_ECT = 0, ECT0 = 2, CE = 3 };
enum { IPV4 = 14, KEY = 26, KEY_BYTES = 12, TCP = 34, OPTIONS = 54, STAMP_BYTES = 12, LEAST_FRAME = 60 };
enum { MOST_FRAME = IPV4 + 0xffff, MOST_OPTIONS = 40, UNSCALED_WINDOW = 0xffff, DEFAULT_MSS = 536 };
enum { NS_PER_MS = 1000000, LEAST_ROOM = 64 };
enum { CLOSED, SYN_SENT, ESTABLISHED, GIVEN_UP };
#define NEVER (-1ll)
#define NO_THRESHOLD (1ll << 62)

/* -- structures ---------------------------------------------------------------------------------------------------- */

/* The content of a frame. */
typedef struct {
    int64_t length_bytes;
    uint32_t ecn, identification, seq, ack, flags, window, has_stamp, stamp, echo;
} segment;

/* The options of a SYN. */
typedef struct {
    uint32_t has_mss, mss_bytes, has_scale, scale, has_stamps, stamp;
} options;

/* The frames of one direction (SegmentFrames). */
typedef struct {
    const tcp_host *host;
    uint8_t head[TCP + 4]; /* Ethernet, IPv4 and the ports; what changes is 0 */
    uint64_t ip_sum, tcp_sum;
    uint32_t window, stamped;
    uint16_t identification;
} direction;

typedef struct {
    int64_t mss, initial, cwnd, ssthresh, counted, before;
} congestion;

typedef struct {
    int64_t srtt_ns, rttvar_ns, rto_ns;
} timer;

/* The alarm of an end: the time at which an event is pending, of which there may be others (MovingCall). */
typedef struct {
    int64_t deadline_ns, pending_ns;
} alarm;

typedef struct {
    direction out;
    congestion window;
    timer timer;
    alarm alarm;
    int64_t mss, peer_window, end, una, next, highest, recover, ecn_recover, timed_to, timed_at_ns, last_sent_ns;
    uint32_t state, isn, ecn, peer_scale, peer_stamp, acked_of_peer, closing, duplicates, timeouts;
    uint32_t recovering, lossy, has_doubts, doubted, cwr;
} sender;

/* Bytes that arrived ahead of something missing. */
typedef struct {
    int64_t start, end;
} stretch;

typedef struct {
    direction out;
    alarm alarm;
    int64_t received_bytes, fin_at, identification;
    uint32_t base, connected, ecn, recent, ce, unanswered, ended;
    stretch *ahead; /* in their order; they do not touch */
    uint32_t aheads, room;
} receiver;

/* One end among those of all hosts, by the addresses and ports in the frames that come to it. */
typedef struct end {
    struct end *next; /* of a bucket */
    const tcp_host *host;
    struct connection *connection;
    uint8_t key[KEY_BYTES];
} end;

typedef struct connection {
    tcp_run *run;
    uint64_t number;
    const tcp_settings *settings;
    uint64_t *tally;
    int64_t awaited_bytes; /* to tell when they have been received; NEVER: none */
    end at_sender, at_receiver;
    sender sender;
    receiver receiver;
} connection;

struct tcp_host {
    tcp_run *run;
    tcp_host *next;
    void *nic;
    uint8_t mac[6], ipv4[4];
};

struct tcp_run {
    network_in_c network;
    tcp_host *hosts;
    uint64_t told;
    uint32_t silent;
    tcp_notice notice;
    /* Connections by the low half of their numbers; free places are listed. */
    connection **places;
    uint32_t *vacant;
    uint32_t room, vacancies, given; /* the room is a power of two */
    end **buckets;                   /* as many as there is room */
    uint8_t frame[MOST_FRAME]; /* zeros behind the headers */
};

static int64_t now_of(const connection *c) {
    return *c->run->network.now_ns;
}

static uint32_t stamp_of(int64_t now_ns) {
    return (uint32_t)(now_ns / NS_PER_MS);
}

/* -- frames -------------------------------------------------------------------------------------------------------- */

static void begin_direction(direction *d, const tcp_host *from, const tcp_host *to, const uint8_t *key) {
    uint8_t *head = d->head;
    uint64_t addresses;
    d->host = from;
    memcpy(head, to->mac, 6);
    memcpy(head + 6, from->mac, 6);
    put(head + 12, 0x0800, 2);
    put(head + IPV4, 0x4500, 2);
    put(head + IPV4 + 6, 0x4000, 2); /* do not fragment */
    put(head + IPV4 + 8, 64 << 8 | 6, 2);
    memcpy(head + KEY, key, KEY_BYTES);
    addresses = number_at(key, 4) + number_at(key + 4, 4);
    d->ip_sum = 0x4500 + 0x4000 + (64 << 8 | 6) + addresses;
    d->tcp_sum = 6 + addresses + number_at(key + 8, 4);
    d->window = UNSCALED_WINDOW;
}

static uint32_t checksum(uint64_t sum) {
    return (0xffff - sum % 0xffff) % 0xffff;
}

/* Send a segment with so many bytes of options, which are in the run's frame already. */
static void send_frame(
    connection *c, direction *d, uint32_t seq, uint32_t ack, uint32_t flags, uint32_t window, uint32_t option_bytes,
    int64_t length_bytes, uint32_t ecn) {
    tcp_run *run = c->run;
    uint8_t *frame = run->frame;
    uint32_t headers = 20 + option_bytes, total = 20 + headers + length_bytes;
    uint32_t offset_and_flags = headers / 4 << 12 | flags, at;
    uint64_t sum = d->tcp_sum + headers + length_bytes + seq + ack + offset_and_flags + window;
    for (at = 0; at < option_bytes; at += 4) sum += number_at(frame + OPTIONS + at, 4);
    memcpy(frame, d->head, sizeof d->head);
    frame[IPV4 + 1] = ecn;
    put(frame + IPV4 + 2, total, 2);
    put(frame + IPV4 + 4, d->identification, 2);
    put(frame + IPV4 + 10, checksum(d->ip_sum + ecn + total + d->identification), 2);
    put(frame + TCP + 4, seq, 4);
    put(frame + TCP + 8, ack, 4);
    put(frame + TCP + 12, offset_and_flags, 2);
    put(frame + TCP + 14, window, 2);
    put(frame + TCP + 16, checksum(sum), 2);
    d->identification++;
    run->network.send(d->host->nic, frame, most(IPV4 + total, LEAST_FRAME), 0);
    memset(frame + OPTIONS, 0, option_bytes);
}

static void put_stamps(uint8_t *at, uint32_t stamp, uint32_t echo) {
    put(at, 0x0101080a, 4);
    put(at + 4, stamp, 4);
    put(at + 8, echo, 4);
}

static void send_segment(
    connection *c, direction *d, uint32_t seq, uint32_t ack, uint32_t flags, int64_t length_bytes, uint32_t ecn,
    uint32_t stamp, uint32_t echo) {
    if (d->stamped) put_stamps(c->run->frame + OPTIONS, stamp, echo);
    send_frame(c, d, seq, ack, flags, d->window, d->stamped ? STAMP_BYTES : 0, length_bytes, ecn);
}

static void send_syn(connection *c, direction *d, uint32_t seq, uint32_t ack, uint32_t flags, const options *o) {
    uint8_t *at = c->run->frame + OPTIONS;
    uint32_t bytes = 4;
    put(at, 2 << 24 | 4 << 16 | o->mss_bytes, 4);
    if (o->has_scale) {
        put(at + bytes, 0x01030300 | o->scale, 4);
        bytes += 4;
    }
    if (o->has_stamps) {
        put_stamps(at + bytes, stamp_of(now_of(c)), o->stamp);
        bytes += STAMP_BYTES;
    }
    send_frame(c, d, seq, ack, flags, least(c->settings->receive_window_bytes, UNSCALED_WINDOW), bytes, 0, NOT_ECT);
}

/* Read a frame of TCP, of at least 54 bytes. */
static segment parse(const uint8_t *frame, uint32_t length) {
    uint32_t words = frame[TCP + 12] >> 4;
    segment s = {0};
    s.ecn = frame[IPV4 + 1] & 3;
    s.length_bytes = (int64_t)number_at(frame + IPV4 + 2, 2) - 20 - 4 * words;
    s.identification = number_at(frame + IPV4 + 4, 2);
    s.seq = number_at(frame + TCP + 4, 4);
    s.ack = number_at(frame + TCP + 8, 4);
    s.flags = frame[TCP + 13];
    s.window = number_at(frame + TCP + 14, 2);
    if (words >= 8 && length >= OPTIONS + STAMP_BYTES && number_at(frame + OPTIONS, 4) == 0x0101080a) {
        s.has_stamp = 1;
        s.stamp = number_at(frame + OPTIONS + 4, 4);
        s.echo = number_at(frame + OPTIONS + 8, 4);
    }
    return s;
}

/* Read the options of a SYN. One that cannot be read counts as absent, and so does everything after it. */
static options parse_options(const uint8_t *frame, uint32_t length) {
    uint32_t at = OPTIONS, to = least(length, TCP + 4 * (frame[TCP + 12] >> 4));
    options o = {0};
    while (at < to && frame[at]) {
        uint32_t bytes;
        if (frame[at] == 1) {
            at++;
            continue;
        }
        if (at + 2 > to || frame[at + 1] < 2 || frame[at + 1] > to - at) break;
        bytes = frame[at + 1];
        if (frame[at] == 2) {
            o.has_mss = bytes == 4;
            o.mss_bytes = o.has_mss ? number_at(frame + at + 2, 2) : 0;
        } else if (frame[at] == 3) {
            o.has_scale = bytes == 3;
            o.scale = o.has_scale ? least(frame[at + 2], MAX_WINDOW_SCALE) : 0;
        } else if (frame[at] == 8) {
            o.has_stamps = bytes == 10;
            o.stamp = o.has_stamps ? number_at(frame + at + 2, 4) : 0;
        }
        at += bytes;
    }
    return o;
}

/* -- the congestion window ----------------------------------------------------------------------------------------- */

static void begin_congestion(congestion *w, int64_t mss, int64_t initial) {
    w->mss = mss;
    w->cwnd = w->initial = initial;
    w->ssthresh = NO_THRESHOLD;
    w->counted = w->before = 0;
}

static int64_t initial_window(int64_t mss) {
    return least(10 * mss, most(2 * mss, 14600));
}

/* Round to the nearest, and halves to even, as Python does. */
static int64_t rounded(double number) {
    int64_t whole = (int64_t)number;
    double rest = number - (double)whole;
    return whole + (rest > 0.5 || (rest == 0.5 && whole & 1));
}

/* Multiply by the aggressiveness of MLTCP; the order of operations is Python's. */
static int64_t aggressive(const tcp_settings *of, int64_t acked_bytes, int64_t total_bytes) {
    int64_t done = of->iteration_bytes ? total_bytes % of->iteration_bytes : 0;
    double factor = of->slope * (double)done / (double)most(1, of->iteration_bytes) + of->intercept;
    return rounded((double)acked_bytes * factor);
}

static void grow(congestion *w, const tcp_settings *of, int64_t acked_bytes, int64_t total_bytes) {
    if (w->cwnd < w->ssthresh) {
        w->cwnd += least(acked_bytes, 2 * w->mss);
        return;
    }
    w->counted += of->is_mltcp ? aggressive(of, acked_bytes, total_bytes) : acked_bytes;
    if (w->counted >= w->cwnd) {
        w->counted -= w->cwnd;
        w->cwnd += w->mss;
    }
}

static void shrink(congestion *w, int64_t flight_bytes) {
    w->before = most(flight_bytes, w->ssthresh);
    w->ssthresh = most(flight_bytes / 2, 2 * w->mss);
    w->counted = 0;
}

/* -- the retransmission timer -------------------------------------------------------------------------------------- */

static void settle(timer *t, const tcp_settings *of) {
    if (t->srtt_ns >= 0) t->rto_ns = least(most(t->srtt_ns + 4 * t->rttvar_ns, of->min_rto_ns), MAX_NS);
}

static void measure(timer *t, const tcp_settings *of, int64_t rtt_ns) {
    if (t->srtt_ns < 0) {
        t->srtt_ns = rtt_ns;
        t->rttvar_ns = rtt_ns / 2;
    } else {
        int64_t off_ns = t->srtt_ns - rtt_ns;
        t->rttvar_ns = (3 * t->rttvar_ns + (off_ns < 0 ? -off_ns : off_ns)) / 4;
        t->srtt_ns = (7 * t->srtt_ns + rtt_ns) / 8;
    }
    settle(t, of);
}

/* -- connections by number, and their ends by addresses ------------------------------------------------------------ */

static connection *connection_of(const tcp_run *run, uint64_t number) {
    uint32_t place = (uint32_t)number;
    connection *c = place < run->room ? run->places[place] : NULL;
    return c && c->number == number ? c : NULL;
}

static end **bucket_of(const tcp_run *run, const uint8_t *key) {
    uint32_t hash = 0, at;
    for (at = 0; at < KEY_BYTES; at += 4) {
        hash = (hash ^ (uint32_t)number_at(key + at, 4)) * 2654435769u;
        hash ^= hash >> 15;
    }
    return &run->buckets[hash & (run->room - 1)];
}

static void insert(tcp_run *run, end *of) {
    end **bucket = bucket_of(run, of->key);
    of->next = *bucket;
    *bucket = of;
}

static void take_out(tcp_run *run, end *of) {
    end **at = bucket_of(run, of->key);
    while (*at != of) at = &(*at)->next;
    *at = of->next;
}

/* Return the end at a host that takes what comes from these addresses; NULL: there is none. */
static end *end_at(const tcp_host *host, const uint8_t *key) {
    end *of = host->run->room ? *bucket_of(host->run, key) : NULL;
    while (of && (of->host != host || memcmp(of->key, key, KEY_BYTES))) of = of->next;
    return of;
}

/* Make room for one more connection: places and buckets grow together. Return 0, or 1 if there is no memory. */
static int make_room(tcp_run *run) {
    uint32_t room = run->room ? 2 * run->room : LEAST_ROOM, at;
    connection **places;
    uint32_t *vacant;
    end **buckets;
    if (run->vacancies) return 0;
    if (!(places = realloc(run->places, room * sizeof *places))) return 1;
    run->places = places;
    if (!(vacant = realloc(run->vacant, room * sizeof *vacant))) return 1;
    run->vacant = vacant;
    if (!(buckets = calloc(room, sizeof *buckets))) return 1;
    free(run->buckets);
    run->buckets = buckets;
    for (at = run->room; at < room; at++) {
        places[at] = NULL;
        vacant[run->vacancies++] = at;
    }
    at = run->room;
    run->room = room;
    while (at--) {
        insert(run, &places[at]->at_sender);
        insert(run, &places[at]->at_receiver);
    }
    return 0;
}

static void tell(connection *c, uint32_t has_ended, uint32_t is_lost) {
    tcp_run *run = c->run;
    run->notice.connection = c->number;
    run->notice.received_bytes = c->receiver.received_bytes;
    run->notice.has_ended = has_ended;
    run->notice.is_lost = is_lost;
    run->network.tell(run->network.clock, run->told);
}

/* End a connection: everything is acknowledged, or it was given up. */
static void end_connection(connection *c) {
    tcp_run *run = c->run;
    uint32_t place = (uint32_t)c->number;
    tell(c, 1, c->sender.state == GIVEN_UP);
    take_out(run, &c->at_sender);
    take_out(run, &c->at_receiver);
    run->places[place] = NULL;
    run->vacant[run->vacancies++] = place;
    free(c->receiver.ahead);
    free(c);
}

/* -- alarms -------------------------------------------------------------------------------------------------------- */

/* Make sure that there is an event at the deadline or before. */
static void set_alarm(connection *c, alarm *of, void (*ring)(void *, uint64_t)) {
    network_in_c *network = &c->run->network;
    if (of->deadline_ns == NEVER || (of->pending_ns != NEVER && of->deadline_ns >= of->pending_ns)) return;
    of->pending_ns = of->deadline_ns;
    network->call(network->clock, of->deadline_ns, ring, c->run, c->number);
}

/* Return whether an event is the one that is pending, and its deadline has come. */
static int rings(const connection *c, alarm *of) {
    if (of->pending_ns != now_of(c)) return 0;
    of->pending_ns = NEVER;
    return 1;
}

/* -- the sender: frames -------------------------------------------------------------------------------------------- */

static void give_up(sender *s) {
    s->state = GIVEN_UP;
    s->alarm.deadline_ns = NEVER;
}

/* Send what windows do not ask about: a segment at a position. */
static void send_at(connection *c, int64_t now_ns, int64_t at, uint32_t flags, int64_t length_bytes) {
    sender *s = &c->sender;
    uint32_t seq = s->isn + 1 + (uint32_t)at;
    send_segment(c, &s->out, seq, s->acked_of_peer, flags, length_bytes, NOT_ECT, stamp_of(now_ns), s->peer_stamp);
}

static void send_ack(connection *c, int64_t now_ns) {
    send_at(c, now_ns, c->sender.next, ACK, 0);
}

/* Send the bytes at a position once more, up to a whole segment. */
static void send_again(connection *c, int64_t now_ns, int64_t at) {
    sender *s = &c->sender;
    int64_t length = most(0, least(s->mss, s->end - at));
    uint32_t flags = ACK;
    if (at + length == s->end) {
        if (length) flags |= PSH;
        if (s->closing && s->highest > s->end) flags |= FIN;
    }
    send_at(c, now_ns, at, flags, length);
}

/* Send a byte into a closed window. */
static void send_probe(connection *c, int64_t now_ns) {
    sender *s = &c->sender;
    int64_t length = least(1, s->end - s->una);
    s->next = s->una + 1;
    s->highest = most(s->highest, s->next);
    send_at(c, now_ns, s->una, length ? ACK : ACK | FIN, length);
}

/* Send what the windows allow, with some bytes more than the congestion window. Return how many segments went. */
static uint32_t send_more(connection *c, int64_t now_ns, int64_t beyond_bytes) {
    sender *s = &c->sender;
    int64_t start = s->next, at = start, highest = s->highest, last = s->end + s->closing;
    int64_t limit = s->una + least(s->window.cwnd + beyond_bytes, s->peer_window);
    uint32_t sent = 0;
    if (start >= last) return 0;
    while (at < last) {
        int64_t length = least(s->mss, s->end - at);
        uint32_t flags = ACK, ecn = NOT_ECT;
        if (at + length > limit) break;
        if (at + length == s->end) {
            if (length) flags |= PSH;
            if (s->closing) flags |= FIN;
        }
        if (at < highest) {
            c->tally[TALLY_RETRANSMITTED]++;
        } else if (s->ecn && length) {
            ecn = ECT0;
            if (s->cwr) flags |= CWR;
            s->cwr = 0;
        }
        send_segment(
            c, &s->out, s->isn + 1 + (uint32_t)at, s->acked_of_peer, flags, length, ecn, stamp_of(now_ns),
            s->peer_stamp);
        at += length + (flags & FIN);
        sent++;
    }
    if (sent) {
        s->next = at;
        s->last_sent_ns = now_ns;
        if (at > highest) {
            s->highest = at;
            if (s->timed_to < 0 && start >= highest) {
                s->timed_to = least(at, start + s->mss);
                s->timed_at_ns = now_ns;
            }
        }
    }
    if (s->alarm.deadline_ns == NEVER && (sent || at == s->una)) s->alarm.deadline_ns = now_ns + s->timer.rto_ns;
    return sent;
}

/* -- the sender: the handshake ------------------------------------------------------------------------------------- */

static void sender_is_established(sender *s, int64_t now_ns, uint32_t acked_of_peer, uint32_t ecn, uint32_t stamped) {
    s->state = ESTABLISHED;
    s->out.stamped = stamped;
    s->acked_of_peer = acked_of_peer;
    s->ecn = ecn;
    s->timed_to = NEVER;
    s->last_sent_ns = now_ns;
    s->timeouts = 0;
    s->alarm.deadline_ns = NEVER;
}

static void send_first_syn(connection *c) {
    const tcp_settings *of = c->settings;
    options o = {1, of->mss_bytes + STAMP_BYTES, 1, of->window_scale, 1, 0};
    send_syn(c, &c->sender.out, c->sender.isn, 0, of->ecn ? SYN | ECE | CWR : SYN, &o);
}

static void on_syn_ack(connection *c, int64_t now_ns, const segment *of, const options *o) {
    sender *s = &c->sender;
    const tcp_settings *settings = c->settings;
    int64_t mss = least(settings->mss_bytes + STAMP_BYTES, o->mss_bytes ? o->mss_bytes : DEFAULT_MSS);
    if (of->ack != s->isn + 1) return;
    if (of->flags & RST) give_up(s);
    if ((of->flags & (SYN | ACK | RST)) != (SYN | ACK)) return;
    if (o->has_stamps) {
        mss -= STAMP_BYTES;
        s->peer_stamp = o->stamp;
    }
    if (mss != s->mss) {
        s->mss = mss;
        begin_congestion(&s->window, mss, initial_window(mss));
    }
    if (s->timeouts)
        begin_congestion(&s->window, mss, mss);
    else
        measure(&s->timer, settings, now_ns - s->timed_at_ns);
    s->peer_scale = o->scale;
    s->peer_window = of->window;
    sender_is_established(
        s, now_ns, of->seq + 1, settings->ecn && (of->flags & (ECE | CWR)) == ECE, o->has_stamps);
    if (!send_more(c, now_ns, 0)) send_ack(c, now_ns);
}

/* -- the sender: acknowledgements ---------------------------------------------------------------------------------- */

/* Judge a retransmission by the first acknowledgement that advances after it (Eifel). */
static void judge(connection *c, const segment *of) {
    sender *s = &c->sender;
    s->has_doubts = 0;
    if (!of->has_stamp || s->doubted - of->echo - 1 >= 1u << 31) return;
    c->tally[TALLY_UNDONE]++;
    s->lossy = s->recovering = 0;
    s->recover = s->una;
    s->next = s->highest;
    s->window.ssthresh = s->window.before;
    s->window.cwnd = s->highest - s->una + s->window.initial;
}

static void on_progress(connection *c, int64_t now_ns, int64_t acked, uint32_t marked) {
    sender *s = &c->sender;
    congestion *w = &s->window;
    int64_t una = s->una + acked, flight = s->next - s->una;
    s->una = una;
    s->timeouts = s->duplicates = 0;
    s->next = most(s->next, una);
    if (0 <= s->timed_to && s->timed_to <= una) {
        s->timed_to = NEVER;
        measure(&s->timer, c->settings, now_ns - s->timed_at_ns);
    } else {
        settle(&s->timer, c->settings);
    }
    if (s->recovering && una >= s->recover) {
        w->cwnd = least(w->ssthresh, most(s->highest - una, w->mss) + w->mss);
        s->recovering = 0;
    } else if (s->recovering) {
        w->cwnd = most(w->cwnd - acked, w->mss) + (acked >= w->mss ? w->mss : 0);
        c->tally[TALLY_RETRANSMITTED]++;
        send_again(c, now_ns, una);
    } else if (s->lossy) {
        s->lossy = una < s->recover;
        grow(w, c->settings, acked, una);
    } else if (flight + s->mss > w->cwnd && !marked) {
        grow(w, c->settings, acked, una);
    }
    s->alarm.deadline_ns = una == s->highest ? NEVER : now_ns + s->timer.rto_ns;
    send_more(c, now_ns, 0);
}

static void on_duplicate(connection *c, int64_t now_ns) {
    sender *s = &c->sender;
    if (s->lossy) return;
    s->duplicates++;
    if (s->recovering) {
        s->window.cwnd += s->window.mss;
        send_more(c, now_ns, 0);
        return;
    }
    if (s->duplicates < 3) {
        send_more(c, now_ns, s->duplicates * s->mss);
        return;
    }
    if (s->una < s->recover) return;
    s->recovering = 1;
    s->recover = s->ecn_recover = s->highest;
    shrink(&s->window, s->highest - s->una);
    s->window.cwnd = s->window.ssthresh + 3 * s->window.mss;
    s->cwr = s->ecn;
    s->timed_to = NEVER;
    s->has_doubts = 1;
    s->doubted = stamp_of(now_ns);
    c->tally[TALLY_RETRANSMITTED]++;
    s->alarm.deadline_ns = now_ns + s->timer.rto_ns;
    send_again(c, now_ns, s->una);
    send_more(c, now_ns, 0);
}

static void on_ack(connection *c, int64_t now_ns, const segment *of) {
    sender *s = &c->sender;
    int64_t una = s->una, acked = (int)(of->ack - (s->isn + 1 + (uint32_t)una));
    int64_t window = (int64_t)of->window << s->peer_scale;
    uint32_t opened = window != s->peer_window, marked = s->ecn && of->flags & ECE;
    if (acked < 0 || una + acked > s->highest) return;
    s->peer_window = window;
    if (marked && una + acked > s->ecn_recover && !s->lossy) {
        if (!s->recovering) {
            shrink(&s->window, s->highest - una);
            s->window.cwnd = s->window.ssthresh;
            s->cwr = 1;
        }
        s->ecn_recover = s->highest;
    }
    if (acked) {
        if (s->has_doubts) judge(c, of);
        on_progress(c, now_ns, acked, marked);
    } else if (s->highest == una || of->length_bytes || of->flags & FIN) {
        return;
    } else if (opened) {
        send_more(c, now_ns, 0);
    } else {
        on_duplicate(c, now_ns);
    }
}

static void sender_takes(connection *c, int64_t now_ns, const segment *of, const options *o) {
    sender *s = &c->sender;
    if (s->state == SYN_SENT) {
        on_syn_ack(c, now_ns, of, o);
    } else if (s->state != ESTABLISHED) {
        return;
    } else if (of->flags & RST) {
        give_up(s);
    } else if (of->flags & SYN) {
        send_ack(c, now_ns);
    } else if (of->flags & ACK) {
        if (of->has_stamp) s->peer_stamp = of->stamp;
        on_ack(c, now_ns, of);
        if (of->flags & FIN || of->length_bytes) {
            if (of->seq == s->acked_of_peer)
                s->acked_of_peer = of->seq + (uint32_t)of->length_bytes + (of->flags & FIN);
            send_ack(c, now_ns);
        }
    }
}

/* -- the sender: time ---------------------------------------------------------------------------------------------- */

static void on_timeout(connection *c, int64_t now_ns) {
    sender *s = &c->sender;
    if (s->alarm.deadline_ns == NEVER || now_ns < s->alarm.deadline_ns) return;
    if (++s->timeouts > MAX_TIMEOUTS) {
        give_up(s);
        return;
    }
    c->tally[TALLY_TIMEOUTS]++;
    s->timer.rto_ns = least(2 * s->timer.rto_ns, MAX_NS);
    s->alarm.deadline_ns = now_ns + s->timer.rto_ns;
    s->timed_to = NEVER;
    if (s->state == SYN_SENT) {
        c->tally[TALLY_RETRANSMITTED]++;
        send_first_syn(c);
        return;
    }
    if (s->highest == s->una) {
        send_probe(c, now_ns);
        return;
    }
    if (!s->lossy) {
        shrink(&s->window, s->highest - s->una);
        s->lossy = s->has_doubts = 1;
        s->doubted = stamp_of(now_ns);
    }
    s->window.cwnd = s->window.mss;
    s->recovering = s->duplicates = 0;
    s->recover = s->highest;
    s->next = s->una;
    s->cwr = s->ecn;
    if (!send_more(c, now_ns, 0)) send_again(c, now_ns, s->una);
}

static void on_sender_alarm(void *of, uint64_t number) {
    tcp_run *run = of;
    connection *c = connection_of(run, number);
    if (!c || !rings(c, &c->sender.alarm) || run->silent) return;
    on_timeout(c, now_of(c));
    set_alarm(c, &c->sender.alarm, on_sender_alarm);
    if (c->sender.state == GIVEN_UP) end_connection(c);
}

static void on_written(connection *c) {
    sender *s = &c->sender;
    int64_t now_ns = now_of(c);
    if (s->state == ESTABLISHED) {
        if (s->next == s->una && now_ns - s->last_sent_ns > s->timer.rto_ns)
            s->window.cwnd = least(s->window.cwnd, s->window.initial);
        send_more(c, now_ns, 0);
    }
    set_alarm(c, &s->alarm, on_sender_alarm);
}

/* -- the receiver -------------------------------------------------------------------------------------------------- */

static void send_answer(connection *c, int64_t now_ns) {
    receiver *r = &c->receiver;
    uint32_t acked = r->base + (uint32_t)r->received_bytes + r->ended;
    r->unanswered = 0;
    r->alarm.deadline_ns = NEVER;
    send_segment(c, &r->out, 1, acked, r->ce ? ACK | ECE : ACK, 0, NOT_ECT, stamp_of(now_ns), r->recent);
}

static void receiver_is_connected(connection *c, uint32_t peer_isn, uint32_t scale, uint32_t ecn, uint32_t stamped) {
    receiver *r = &c->receiver;
    r->connected = 1;
    r->out.stamped = stamped;
    r->base = peer_isn + 1;
    r->ecn = ecn;
    r->out.window = least(c->settings->receive_window_bytes >> scale, UNSCALED_WINDOW);
}

static void on_syn(connection *c, const segment *of, const options *o) {
    receiver *r = &c->receiver;
    const tcp_settings *settings = c->settings;
    options mine = {
        1, settings->mss_bytes + STAMP_BYTES, o->has_scale, settings->window_scale, o->has_stamps, o->stamp};
    if (!r->connected)
        receiver_is_connected(
            c, of->seq, o->has_scale ? settings->window_scale : 0,
            settings->ecn && (of->flags & (ECE | CWR)) == (ECE | CWR), o->has_stamps);
    send_syn(c, &r->out, 0, r->base, r->ecn ? SYN | ACK | ECE : SYN | ACK, &mine);
}

/* Take bytes that arrived out of order or with something ahead. Without memory for them they count as lost. */
static void take(connection *c, int64_t start, int64_t end) {
    receiver *r = &c->receiver;
    int64_t done = r->received_bytes;
    uint32_t first = 0, behind = r->aheads, high = r->aheads;
    while (first < high) {
        uint32_t middle = (first + high) / 2;
        if (r->ahead[middle].end < start)
            first = middle + 1;
        else
            high = middle;
    }
    for (high = first; high < behind;) {
        uint32_t middle = (high + behind) / 2;
        if (end < r->ahead[middle].start)
            behind = middle;
        else
            high = middle + 1;
    }
    if (end > start &&
        (end <= done || (first < behind && r->ahead[first].start <= start && end <= r->ahead[first].end))) {
        c->tally[TALLY_DUPLICATE]++;
        return;
    }
    if (first < behind) {
        start = least(start, r->ahead[first].start);
        end = most(end, r->ahead[behind - 1].end);
    }
    if (start > done) {
        if (end <= start) return;
        if (first == behind) {
            if (r->aheads == r->room) {
                uint32_t room = r->room ? 2 * r->room : 8;
                stretch *more = realloc(r->ahead, room * sizeof *more);
                if (!more) return;
                r->ahead = more;
                r->room = room;
            }
            memmove(&r->ahead[first + 1], &r->ahead[first], (r->aheads - first) * sizeof *r->ahead);
            r->aheads++;
            behind++;
        }
        r->ahead[first].start = start;
        r->ahead[first++].end = end;
    } else {
        r->received_bytes = most(done, end);
    }
    if (first == behind) return;
    memmove(&r->ahead[first], &r->ahead[behind], (r->aheads - behind) * sizeof *r->ahead);
    r->aheads -= behind - first;
}

static void receiver_takes(connection *c, int64_t now_ns, const segment *of, const options *o) {
    receiver *r = &c->receiver;
    int64_t length = of->length_bytes, done = r->received_bytes, start;
    if (of->flags & (SYN | RST)) {
        if (!(of->flags & RST)) on_syn(c, of, o);
        return;
    }
    if (!r->connected || length < 0 || (!length && !(of->flags & FIN))) return;
    if (length) {
        if (r->identification < 0 || ((of->identification - r->identification) & 0xffff) < 0x8000)
            r->identification = of->identification;
        else
            c->tally[TALLY_REORDERED]++;
    }
    if (r->ecn) {
        if (of->flags & CWR) r->ce = 0;
        if (of->ecn == CE) r->ce = 1;
    }
    start = done + (int)(of->seq - (r->base + (uint32_t)done));
    if (of->has_stamp && (start < done || (start == done && !r->unanswered))) r->recent = of->stamp;
    if (start == done && !r->aheads && !(of->flags & FIN)) {
        r->received_bytes = done + length;
        if (++r->unanswered < 2) {
            if (r->alarm.deadline_ns == NEVER) r->alarm.deadline_ns = now_ns + c->settings->delayed_ack_ns;
            return;
        }
    } else if (start <= done + c->settings->receive_window_bytes) {
        if (of->flags & FIN) r->fin_at = start + length;
        take(c, start, start + length);
        if (r->fin_at == r->received_bytes) r->ended = 1;
    }
    send_answer(c, now_ns);
}

static void on_receiver_alarm(void *of, uint64_t number) {
    tcp_run *run = of;
    connection *c = connection_of(run, number);
    alarm *due;
    if (!c || !rings(c, &c->receiver.alarm) || run->silent) return;
    due = &c->receiver.alarm;
    if (due->deadline_ns != NEVER && now_of(c) >= due->deadline_ns)
        send_answer(c, now_of(c));
    else
        set_alarm(c, due, on_receiver_alarm);
}

/* -- hosts and runs ------------------------------------------------------------------------------------------------ */

int tcp_deliver(void *at, int64_t now_ns, const uint8_t *frame, uint32_t length) {
    tcp_host *host = at;
    connection *c;
    segment of;
    options o = {0};
    end *found;
    if (length < OPTIONS || frame[23] != 6 || number_at(frame + 12, 3) != 0x080045) return 0;
    found = end_at(host, frame + KEY);
    if (!found) return 0;
    c = found->connection;
    of = parse(frame, length);
    if (of.flags & SYN) o = parse_options(frame, length);
    if (found == &c->at_sender) {
        sender_takes(c, now_ns, &of, &o);
        set_alarm(c, &c->sender.alarm, on_sender_alarm);
        if (c->sender.state == GIVEN_UP || (c->sender.closing && c->sender.una > c->sender.end)) end_connection(c);
    } else {
        receiver_takes(c, now_ns, &of, &o);
        set_alarm(c, &c->receiver.alarm, on_receiver_alarm);
        if (c->awaited_bytes != NEVER && c->awaited_bytes <= c->receiver.received_bytes) {
            c->awaited_bytes = NEVER;
            tell(c, 0, 0);
        }
    }
    return 1;
}

static void put_key(uint8_t *key, const tcp_host *source, const tcp_host *destination, uint16_t from, uint16_t to) {
    memcpy(key, source->ipv4, 4);
    memcpy(key + 4, destination->ipv4, 4);
    put(key + 8, from, 2);
    put(key + 10, to, 2);
}

int tcp_is_taken(const tcp_host *source, const tcp_host *destination, uint16_t from, uint16_t to) {
    uint8_t key[KEY_BYTES];
    put_key(key, source, destination, from, to);
    return end_at(destination, key) != NULL;
}

/* Return the CRC-32 of a key: the initial sequence number, which looks random and is the same in every run. */
static uint32_t crc32_of(const uint8_t *key) {
    uint32_t crc = 0xffffffffu, at, bit;
    for (at = 0; at < KEY_BYTES; at++) {
        crc ^= key[at];
        for (bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (crc & 1 ? 0xedb88320u : 0);
    }
    return ~crc;
}

uint64_t tcp_connect(
    tcp_host *source, tcp_host *destination, uint16_t from, uint16_t to, const tcp_settings *settings,
    uint64_t *tally) {
    tcp_run *run = source->run;
    connection *c;
    uint32_t place;
    if (settings->mss_bytes < 1 || settings->mss_bytes + OPTIONS + STAMP_BYTES > MOST_FRAME) return 0;
    if (make_room(run) || !(c = calloc(1, sizeof *c))) return 0;
    place = run->vacant[--run->vacancies];
    run->places[place] = c;
    c->run = run;
    c->number = (uint64_t)++run->given << 32 | place;
    c->settings = settings;
    c->tally = tally;
    c->awaited_bytes = NEVER;
    c->at_sender.host = source;
    c->at_receiver.host = destination;
    c->at_sender.connection = c->at_receiver.connection = c;
    put_key(c->at_receiver.key, source, destination, from, to);
    put_key(c->at_sender.key, destination, source, to, from);
    insert(run, &c->at_sender);
    insert(run, &c->at_receiver);
    begin_direction(&c->sender.out, source, destination, c->at_receiver.key);
    begin_direction(&c->receiver.out, destination, source, c->at_sender.key);
    c->sender.isn = crc32_of(c->at_receiver.key);
    c->sender.mss = settings->mss_bytes;
    begin_congestion(&c->sender.window, settings->mss_bytes, initial_window(settings->mss_bytes));
    c->sender.timer.srtt_ns = -1;
    c->sender.timer.rto_ns = most(settings->min_rto_ns, INITIAL_NS);
    c->sender.timed_to = NEVER;
    c->sender.alarm.deadline_ns = c->sender.alarm.pending_ns = NEVER;
    c->receiver.alarm = c->sender.alarm;
    c->receiver.identification = c->receiver.fin_at = NEVER;
    return c->number;
}

void tcp_open(tcp_run *run, uint64_t number) {
    connection *c = connection_of(run, number);
    if (!c) return;
    c->sender.state = SYN_SENT;
    c->sender.timed_at_ns = now_of(c);
    c->sender.alarm.deadline_ns = now_of(c) + c->sender.timer.rto_ns;
    send_first_syn(c);
    set_alarm(c, &c->sender.alarm, on_sender_alarm);
}

void tcp_establish(tcp_run *run, uint64_t number) {
    connection *c = connection_of(run, number);
    const tcp_settings *of;
    if (!c) return;
    of = c->settings;
    c->sender.peer_scale = of->window_scale;
    c->sender.peer_window = of->receive_window_bytes >> of->window_scale << of->window_scale;
    sender_is_established(&c->sender, now_of(c), 1, of->ecn, 1);
    receiver_is_connected(c, c->sender.isn, of->window_scale, of->ecn, 1);
}

void tcp_write(tcp_run *run, uint64_t number, int64_t length_bytes, uint32_t closes) {
    connection *c = connection_of(run, number);
    if (!c || c->sender.closing) return;
    c->sender.end += length_bytes;
    c->sender.closing = closes != 0;
    on_written(c);
}

void tcp_await(tcp_run *run, uint64_t number, int64_t received_bytes) {
    connection *c = connection_of(run, number);
    if (c) c->awaited_bytes = received_bytes;
}

int64_t tcp_received(const tcp_run *run, uint64_t number) {
    const connection *c = connection_of(run, number);
    return c ? c->receiver.received_bytes : -1;
}

const tcp_notice *tcp_told(const tcp_run *run) {
    return &run->notice;
}

tcp_run *tcp_new(const network_in_c *network, uint64_t told) {
    tcp_run *run = calloc(1, sizeof *run);
    if (!run) return NULL;
    run->network = *network;
    run->told = told;
    return run;
}

tcp_host *tcp_add_host(tcp_run *run, void *nic, const uint8_t *mac, const uint8_t *ipv4) {
    tcp_host *host = calloc(1, sizeof *host);
    if (!host) return NULL;
    host->run = run;
    host->nic = nic;
    memcpy(host->mac, mac, sizeof host->mac);
    memcpy(host->ipv4, ipv4, sizeof host->ipv4);
    host->next = run->hosts;
    return run->hosts = host;
}

void tcp_silence(tcp_run *run) {
    run->silent = 1;
}

void tcp_free(tcp_run *run) {
    tcp_host *host = run->hosts;
    uint32_t at;
    for (at = 0; at < run->room; at++)
        if (run->places[at]) {
            free(run->places[at]->receiver.ahead);
            free(run->places[at]);
        }
    while (host) {
        tcp_host *following = host->next;
        free(host);
        host = following;
    }
    free(run->places);
    free(run->vacant);
    free(run->buckets);
    free(run);
}
