// SPDX-License-Identifier: Apache-2.0
// Which TCP connections do the processes of a cgroup open and close? Each becomes one event in a ring buffer. Where the
// map `marks` holds a type of service, the connection's packets carry it.
//
// The program calls nothing that depends on the kernel's own types, so one object serves every kernel from 5.8 on.

#include <linux/bpf.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define FAMILY_IPV4 2
#define FAMILY_IPV6 10
#define LEVEL_IP 0
#define OPTION_TOS 1
#define STATE_CLOSE 7
#define MAPPED bpf_htonl(0xffff)

enum what { OPENED = 1, ACCEPTED = 2, CLOSED = 3 };

// Addresses in network order, ports in that of the host.
struct event {
    __u8 what;
    __u8 marked;
    __u16 local_port;
    __u16 remote_port;
    __u16 unused;
    __u32 local;
    __u32 remote;
};

struct {
    __uint(type, BPF_MAP_TYPE_RINGBUF);
    __uint(max_entries, 1 << 18);
} events SEC(".maps");

// Entry 0: 0 for no mark, else 0x100 and the type of service.
struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, __u32);
} marks SEC(".maps");

static __always_inline int is_ipv4(struct bpf_sock_ops *ops) {
    if (ops->family == FAMILY_IPV4) return 1;
    // A socket that can do both carries IPv4 under mapped addresses.
    return ops->family == FAMILY_IPV6 && ops->remote_ip6[0] == 0 && ops->remote_ip6[1] == 0
           && ops->remote_ip6[2] == MAPPED;
}

static __always_inline void report(struct bpf_sock_ops *ops, __u8 what, __u8 marked) {
    struct event *event = bpf_ringbuf_reserve(&events, sizeof(*event), 0);
    // The agent also reads the list of all sockets now and then, so that an event may be missing.
    if (!event) return;
    event->what = what;
    event->marked = marked;
    event->local_port = ops->local_port;
    event->remote_port = bpf_ntohl(ops->remote_port);
    event->unused = 0;
    event->local = ops->local_ip4;
    event->remote = ops->remote_ip4;
    bpf_ringbuf_submit(event, 0);
}

static __always_inline __u8 mark(struct bpf_sock_ops *ops) {
    __u32 first = 0;
    __u32 *wanted = bpf_map_lookup_elem(&marks, &first);
    if (!wanted || !*wanted) return 0;
    int tos = *wanted & 0xff;
    return bpf_setsockopt(ops, LEVEL_IP, OPTION_TOS, &tos, sizeof(tos)) == 0;
}

SEC("sockops")
int connections(struct bpf_sock_ops *ops) {
    switch (ops->op) {
    case BPF_SOCK_OPS_ACTIVE_ESTABLISHED_CB:
    case BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB:
        if (!is_ipv4(ops)) break;
        bpf_sock_ops_cb_flags_set(ops, ops->bpf_sock_ops_cb_flags | BPF_SOCK_OPS_STATE_CB_FLAG);
        report(ops, ops->op == BPF_SOCK_OPS_ACTIVE_ESTABLISHED_CB ? OPENED : ACCEPTED, mark(ops));
        break;
    case BPF_SOCK_OPS_STATE_CB:
        if (ops->args[1] == STATE_CLOSE && is_ipv4(ops)) report(ops, CLOSED, 0);
        break;
    }
    return 1;
}

char _license[] SEC("license") = "Apache-2.0";
