/* Random bytes for Rust's standard library under Wine before 9.0, which lacks this library of
 * Windows. Only for tests: a later Wine finds its own first. */

#include <windows.h>
#include <ntsecapi.h> /* RtlGenRandom */

__declspec(dllexport) BOOL WINAPI ProcessPrng(PBYTE buffer, SIZE_T length)
{
	while (length > 0) {
		ULONG part = length > 1 << 20 ? 1 << 20 : (ULONG)length;

		if (!RtlGenRandom(buffer, part))
			return FALSE;
		buffer += part;
		length -= part;
	}
	return TRUE;
}
