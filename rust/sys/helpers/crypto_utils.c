// SPDX-License-Identifier: GPL-2.0

#include <crypto/utils.h>

int rpcrdma_helper_crypto_memneq(const void *a, const void *b, size_t size)
{
	return crypto_memneq(a, b, size);
}
