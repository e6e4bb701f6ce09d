// Idioms of published v1model programs: helpers that take standard_metadata as a parameter, functions, tuples in digests
// and field lists, nested structs and controls, header copies, conditional assignment of whole structs.
#include <core.p4>
#include <v1model.p4>

header frame_t { bit<8> kind; bit<8> x; bit<16> y; bit<32> z; }
struct pair_t { bit<8> a; bit<16> b; }
struct deep_t { pair_t first; pair_t second; }
struct headers_t { frame_t frame; frame_t copy; }
struct metadata_t { deep_t deep; bit<9> port; bit<4> seen; }

action my_drop(inout standard_metadata_t smeta) {
    mark_to_drop(smeta);
}

action to_port(inout standard_metadata_t smeta, in bit<9> port) {
    smeta.egress_spec = port;
}

bit<16> folded(in bit<32> value) {
    bit<16> low = value[15:0];
    if (value[31:16] == 0) {
        return low;
    }
    return low ^ value[31:16];
}

parser P(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    state start {
        meta.deep = { { 1, 2 }, { 3, 4 } };
        packet.extract(hdr.frame);
        transition select(hdr.frame.kind, hdr.frame.x[3:0]) {
            (0x80 &&& 0x80, _): again;
            (_, 7): again;
            default: accept;
        }
    }
    state again {
        packet.extract(hdr.copy);
        transition accept;
    }
}

control V(inout headers_t hdr, inout metadata_t meta) { apply {} }

control Choose(inout standard_metadata_t smeta, inout metadata_t meta, in frame_t frame) {
    action flood(bit<16> group) { smeta.mcast_grp = group; }
    action forward(bit<9> port) { smeta.egress_spec = port; meta.seen = meta.seen + 1; }
    table chosen {
        key = { frame.x: exact; meta.deep.second.a: ternary; }
        actions = { forward; flood; my_drop(smeta); NoAction; }
        default_action = my_drop(smeta);
        size = 32;
    }
    apply {
        chosen.apply();
    }
}

control I(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    Choose() choose;
    apply {
        to_port(standard_metadata, 6);
        if (!hdr.frame.isValid()) {
            my_drop(standard_metadata);
            return;
        }
        if (hdr.frame.kind[1:0] == 1) {
            meta.deep.second = meta.deep.first;
        } else if (hdr.frame.kind[1:0] == 2) {
            deep_t other = { { hdr.frame.x, 7 }, { 9, hdr.frame.y } };
            meta.deep = other;
        }
        hdr.frame.y = folded(hdr.frame.z) + meta.deep.second.b;
        if (hdr.frame.kind[2:2] == 1) {
            choose.apply(standard_metadata, meta, hdr.frame);
        } else if (hdr.frame.kind[3:3] == 1) {
            standard_metadata.mcast_grp = (bit<16>)hdr.frame.x;
            my_drop(standard_metadata);
            if (hdr.frame.kind[4:4] == 1) {
                to_port(standard_metadata, 3);
            }
        }
        if (hdr.copy.isValid()) {
            frame_t saved = hdr.copy;
            hdr.copy = hdr.frame;
            hdr.frame = saved;
        } else if (hdr.frame.kind[5:5] == 1) {
            hdr.copy = hdr.frame;
        }
    }
}

control E(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    apply {
        if (hdr.frame.isValid() && hdr.frame.kind[6:6] == 1 && hdr.frame.x > 200) {
            my_drop(standard_metadata);
        }
        if (standard_metadata.instance_type == 5) {
            standard_metadata_t saved = standard_metadata;
            if (hdr.frame.isValid()) {
                hdr.frame.y = saved.egress_rid;
            }
        }
    }
}

control C(inout headers_t hdr, inout metadata_t meta) { apply {} }
control D(packet_out packet, in headers_t hdr) { apply { packet.emit(hdr.frame); packet.emit(hdr.copy); } }

V1Switch(P(), V(), I(), E(), C(), D()) main;
