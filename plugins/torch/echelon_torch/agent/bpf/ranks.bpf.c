// SPDX-License-Identifier: Apache-2.0
// The rank of each packet that this host sends on a job's connections, written as its code point: hosts rank where
// switches do not. The arithmetic is that of ranks.h; which flow of which iteration a packet belongs to is found as the
// P4 program finds it, by the bytes that its connection has carried (control Classifier). Other packets stay as they are.
//
// It is attached at the egress of an interface (tcx, kernels from 6.6 on), where a packet may still be a whole train of
// segments. What processors do at once to one state may lose one of two changes, as large as one packet's.

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/tcp.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

typedef __u8 uint8_t;
typedef __u16 uint16_t;
typedef __u32 uint32_t;
typedef __u64 uint64_t;
typedef __s64 int64_t;

#include "constants.h"
#include "sizes_v1model.h"
#include "ranks.h"

enum { NEXT = -1, MOST_FLOWS = 1 << 14, SEARCH_STEPS = 15, CONTROL_QUEUE = 7, NANOSECONDS = 1000, MOST_GROWTH = 1 << 24 };
#define HEADERS (sizeof(struct iphdr) + sizeof(struct tcphdr))

// Addresses and ports in network order.
struct key {
    __u32 src, dst;
    __u16 src_port, dst_port;
};

// One connection of TCP. Those that count as one have the same stream.
struct connection {
    __u32 stream;
    __u32 is_answer; // only its acknowledgements are known
    __u32 job;
    __u32 is_head; // it may open an iteration
    __u64 gap_us;
    __u32 head_bytes;
    __u32 first, count; // its flows, in the order of their positions
    __u32 is_sent;      // `end` is the sequence number after the newest byte that it has sent
    __u32 end;
    __u32 unused;
};

struct stream {
    struct rank_stream order;
    __u16 epoch, unused;
    __u64 last_us;
    __u32 bytes, unused_too;
};

struct flow {
    __u32 end_bytes, state;
    struct rank_rule rule;
};

struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, MOST_FLOWS);
    __type(key, struct key);
    __type(value, struct connection);
} ranked SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, MOST_FLOWS);
    __type(key, __u32);
    __type(value, struct flow);
} flows SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, MOST_FLOWS);
    __type(key, __u32);
    __type(value, struct stream);
} streams SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, MOST_FLOWS);
    __type(key, __u32);
    __type(value, struct rank_state);
} states SEC(".maps");

// The epoch of each job.
struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, JOBS);
    __type(key, __u32);
    __type(value, __u32);
} epochs SEC(".maps");

static __always_inline struct flow *flow_at(const struct connection *connection, __u32 position) {
    __u32 low = connection->first, high = low + connection->count, at = low;
    struct flow *found;
    for (int step = 0; step < SEARCH_STEPS && low < high; step++) {
        at = (low + high) / 2;
        found = bpf_map_lookup_elem(&flows, &at);
        if (!found) return 0;
        if (position < found->end_bytes)
            high = at;
        else
            low = at + 1;
    }
    return low < connection->first + connection->count ? bpf_map_lookup_elem(&flows, &low) : 0;
}

// Return the position of a packet on its connection, and open an iteration where one begins.
static __always_inline __u32 locate(
    struct connection *connection, struct stream *stream, __u32 *epoch, __u32 seq, __u32 size, struct rank_packet *packet) {
    __u32 ahead = 0, grown = size, end = seq + size;
    if (connection->is_sent && (end - connection->end < MOST_GROWTH || connection->end - end <= MOST_GROWTH)) {
        ahead = seq - connection->end;
        grown = end - connection->end;
        if ((__s32)grown <= 0) {
            packet->resent = 1;
            grown = 0;
            end = connection->end;
        }
    }
    connection->is_sent = 1;
    connection->end = end;
    if (!*epoch
        || (connection->is_head && stream->epoch == *epoch && stream->bytes >= connection->head_bytes && !packet->resent
            && packet->now_us - stream->last_us > connection->gap_us))
        *epoch = 0x100 | (__u8)(*epoch + 1);
    if (stream->epoch != *epoch && !packet->resent) {
        stream->bytes = 0;
        stream->epoch = *epoch;
    }
    packet->epoch = stream->epoch;
    __u32 position = stream->bytes + ahead;
    if ((__s32)ahead < 0 && position > stream->bytes) position = 0;
    stream->bytes += grown;
    stream->last_us = packet->now_us;
    return position;
}

static __always_inline void mark(struct __sk_buff *skb, const struct iphdr *ip, __u8 queue) {
    __u8 tos = queue << 5 | (ip->tos & 3);
    __u16 before = bpf_htons(0x4500 | ip->tos), after = bpf_htons(0x4500 | tos);
    if (tos == ip->tos) return;
    bpf_l3_csum_replace(skb, ETH_HLEN + __builtin_offsetof(struct iphdr, check), before, after, sizeof(before));
    bpf_skb_store_bytes(skb, ETH_HLEN + __builtin_offsetof(struct iphdr, tos), &tos, sizeof(tos), 0);
}

SEC("tc")
int ranks(struct __sk_buff *skb) {
    struct {
        struct iphdr ip;
        struct tcphdr tcp;
    } at;
    struct rank_packet packet = {};
    if (skb->protocol != bpf_htons(ETH_P_IP) || bpf_skb_load_bytes(skb, ETH_HLEN, &at, HEADERS) != 0) return NEXT;
    if (at.ip.ihl != 5 || at.ip.protocol != IPPROTO_TCP || at.ip.frag_off & bpf_htons(0x3fff)) return NEXT;
    struct key key = {at.ip.saddr, at.ip.daddr, at.tcp.source, at.tcp.dest};
    struct connection *connection = bpf_map_lookup_elem(&ranked, &key);
    if (!connection) return NEXT;
    __u32 headers = ETH_HLEN + sizeof(struct iphdr) + at.tcp.doff * 4, seq = bpf_ntohl(at.tcp.seq);
    if (skb->len <= headers) {
        mark(skb, &at.ip, CONTROL_QUEUE);
        return NEXT;
    }
    if (connection->is_answer) return NEXT;
    struct stream *stream = bpf_map_lookup_elem(&streams, &connection->stream);
    __u32 *epoch = bpf_map_lookup_elem(&epochs, &connection->job);
    if (!stream || !epoch) return NEXT;
    packet.now_us = (skb->tstamp ? skb->tstamp : bpf_ktime_get_ns()) / NANOSECONDS;
    __u32 size = skb->len - headers, position = locate(connection, stream, epoch, seq, size, &packet);
    struct flow *flow = flow_at(connection, position);
    if (!flow) return NEXT;
    struct rank_state *state = bpf_map_lookup_elem(&states, &flow->state);
    if (!state) return NEXT;
    packet.left_bytes = flow->end_bytes - position;
    packet.last = size >= packet.left_bytes;
    struct bpf_sock *socket = skb->sk;
    if (socket) socket = bpf_sk_fullsock(socket);
    struct bpf_tcp_sock *tcp = socket ? bpf_tcp_sock(socket) : 0;
    packet.alone = tcp && tcp->snd_una == seq;
    rank(&flow->rule, state, &stream->order, &packet);
    mark(skb, &at.ip, packet.queue);
    return NEXT;
}

char _license[] SEC("license") = "Apache-2.0";
