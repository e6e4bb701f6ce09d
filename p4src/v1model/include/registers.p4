// SPDX-License-Identifier: Apache-2.0
// Registers that several controls use.

// The sequence number of the packet that left last, by port and queue: egress writes it, Promotion in ingress reads it.
register<bit<32>>(PORT_QUEUES) queue_left;
// What is known of the packet that entered a queue last, of those that are ranked relative to others, by port and queue:
// its rank and its stream, its sequence number, when it came, how fast its rank grows, and, where the queue is outside the
// switch, how long it counts. Promotion writes them, Order reads them.
register<ranked_t>(PORT_QUEUES) queue_rank;
register<bit<32>>(PORT_QUEUES) queue_ranked;
register<time_us_t>(PORT_QUEUES) queue_ranked_us;
register<pace_t>(PORT_QUEUES) queue_pace;
register<time_us_t>(PORT_QUEUES) queue_until_us;
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
