// SPDX-License-Identifier: Apache-2.0
// Registers that several controls use.

// The sequence number of the packet that left last, by port and queue: egress writes it, Promotion in ingress reads it.
register<bit<32>>(PORT_QUEUES) queue_left;
// What is known of the packets of a queue that are ranked relative to others, by port and queue. Of the one that left last,
// or, until one has left, of the first one: its rank and its stream, when it came, and how fast its rank grows. Egress and
// Promotion write them, Order reads them.
register<ranked_t>(PORT_QUEUES) queue_rank;
register<time_us_t>(PORT_QUEUES) queue_rank_us;
register<pace_t>(PORT_QUEUES) queue_pace;
// Of the one that entered last: its sequence number, when it came, and, where the queue is outside the switch, how long it
// counts. Promotion writes them, and Order reads them.
register<bit<32>>(PORT_QUEUES) queue_ranked;
register<time_us_t>(PORT_QUEUES) queue_ranked_us;
register<time_us_t>(PORT_QUEUES) queue_until_us;
// When a packet last left a queue with none behind it, by port and queue: egress writes it, Order and
// Promotion read it.
register<time_us_t>(PORT_QUEUES) queue_emptied_us;
// The time when a packet of the stream left last: egress writes it, Promotion in ingress reads it.
register<time_us_t>(STREAMS) stream_left_us;
// The largest tardiness of a flow that ended in this iteration, by EchelonFlow: egress writes it, Deadline reads it.
register<bit<32>>(ECHELONFLOWS) late_us;
// How far each connection has sent: Classifier writes it, Pause reads it.
register<bytes_sent_t>(CONNECTIONS) connection_sent;
// When the last packet of the connection arrived: Classifier writes it, Pause reads it.
register<time_us_t>(CONNECTIONS) connection_last_us;
// Whether the last packet of the connection had to stay in a lower queue: Promotion writes it, Pause reads it.
register<bit<1>>(CONNECTIONS) connection_stays;
// 1 and the last acknowledgement of the connection that passed: Pause writes it, Promotion reads it.
register<bit<33>>(CONNECTIONS) connection_acked;
