/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The values that trace events show by name. Rust takes them from here too.
 */
#ifndef RPCRDMA_TRACE_H
#define RPCRDMA_TRACE_H

/* Set in the number of a connection if it is one of the server. */
#define RPCRDMA_TRACE_SERVER 0x80000000u

/**
 * enum rpcrdma_trace_end - the reason why a connection was ended
 * @RPCRDMA_END_CLOSED: SUNRPC closed it, or it was lost and SUNRPC followed
 * @RPCRDMA_END_FAILED: a message could not be posted
 * @RPCRDMA_END_REPLACED: SUNRPC connects anew
 * @RPCRDMA_END_DESTROYED: the transport goes away
 */
enum rpcrdma_trace_end {
	RPCRDMA_END_CLOSED,
	RPCRDMA_END_FAILED,
	RPCRDMA_END_REPLACED,
	RPCRDMA_END_DESTROYED,
};

/**
 * enum rpcrdma_trace_direction - the direction of a region's payload
 * @RPCRDMA_PEER_READS: the peer reads from it
 * @RPCRDMA_PEER_WRITES: the peer writes to it
 */
enum rpcrdma_trace_direction {
	RPCRDMA_PEER_READS,
	RPCRDMA_PEER_WRITES,
};

/**
 * enum rpcrdma_trace_call - the form in which a Call is sent
 * @RPCRDMA_CALL_INLINE: all of it in the Send
 * @RPCRDMA_CALL_READ_CHUNK: its payload in a Read chunk
 * @RPCRDMA_CALL_SPECIAL: all of it in a Read chunk (RDMA_NOMSG)
 * @RPCRDMA_CALL_BOTH: its payload in a Read chunk, the rest in a Call chunk
 */
enum rpcrdma_trace_call {
	RPCRDMA_CALL_INLINE,
	RPCRDMA_CALL_READ_CHUNK,
	RPCRDMA_CALL_SPECIAL,
	RPCRDMA_CALL_BOTH,
};

/**
 * enum rpcrdma_trace_offer - the chunks that a Call offers for its Reply
 * @RPCRDMA_OFFER_NONE: the Reply comes inline
 * @RPCRDMA_OFFER_WRITE_CHUNK: a Write chunk for the payload
 * @RPCRDMA_OFFER_REPLY_CHUNK: a Reply chunk for all of it
 * @RPCRDMA_OFFER_BOTH: a chunk for the payload and one for the rest
 */
enum rpcrdma_trace_offer {
	RPCRDMA_OFFER_NONE,
	RPCRDMA_OFFER_WRITE_CHUNK,
	RPCRDMA_OFFER_REPLY_CHUNK,
	RPCRDMA_OFFER_BOTH,
};

/**
 * enum rpcrdma_trace_post - the reason why a message was not posted
 * @RPCRDMA_POST_CLOSED: the connection is being shut down
 * @RPCRDMA_POST_FULL: the Send Queue is full
 * @RPCRDMA_POST_REFUSED: the device refused
 */
enum rpcrdma_trace_post {
	RPCRDMA_POST_CLOSED,
	RPCRDMA_POST_FULL,
	RPCRDMA_POST_REFUSED,
};

/**
 * enum rpcrdma_trace_work - the kind of work request that has completed
 * @RPCRDMA_WORK_RECEIVE: a Receive
 * @RPCRDMA_WORK_SEND: a Send
 * @RPCRDMA_WORK_REGISTER: a registration
 * @RPCRDMA_WORK_INVALIDATE: a local invalidation
 * @RPCRDMA_WORK_READ: an RDMA Read
 */
enum rpcrdma_trace_work {
	RPCRDMA_WORK_RECEIVE,
	RPCRDMA_WORK_SEND,
	RPCRDMA_WORK_REGISTER,
	RPCRDMA_WORK_INVALIDATE,
	RPCRDMA_WORK_READ,
};

/**
 * enum rpcrdma_trace_verdict - the verdict on a Reply
 * @RPCRDMA_VERDICT_INLINE: the message came inline
 * @RPCRDMA_VERDICT_PLACED: the message is in the Reply chunk
 * @RPCRDMA_VERDICT_FAILED: an error, or a Reply that does not answer the Call
 * @RPCRDMA_VERDICT_AGAIN: an error, after which the Call is sent again in
 *	another form
 */
enum rpcrdma_trace_verdict {
	RPCRDMA_VERDICT_INLINE,
	RPCRDMA_VERDICT_PLACED,
	RPCRDMA_VERDICT_FAILED,
	RPCRDMA_VERDICT_AGAIN,
};

/**
 * enum rpcrdma_trace_answer - the answer to a message that is refused
 * @RPCRDMA_ANSWER_NONE: no answer
 * @RPCRDMA_ANSWER_ERR_VERS: RDMA_ERROR with the versions that are supported
 * @RPCRDMA_ANSWER_ERR_CHUNK: RDMA_ERROR of the other kind
 * @RPCRDMA_ANSWER_ERROR: RDMA2_ERROR of Version Two
 * @RPCRDMA_ANSWER_CLOSE: the connection is ended
 */
enum rpcrdma_trace_answer {
	RPCRDMA_ANSWER_NONE,
	RPCRDMA_ANSWER_ERR_VERS,
	RPCRDMA_ANSWER_ERR_CHUNK,
	RPCRDMA_ANSWER_ERROR,
	RPCRDMA_ANSWER_CLOSE,
};

#endif
