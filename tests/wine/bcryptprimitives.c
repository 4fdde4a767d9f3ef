/* bcryptprimitives.dll for Wine, which has none before version 9: the one function that Rust's
   standard library imports from it. The rest of the library is left out. */

#include <windows.h>
#include <ntsecapi.h>

__declspec(dllexport) BOOL WINAPI ProcessPrng(PBYTE data, SIZE_T len) {
    while (len > 0) {
        ULONG some = len > 1 << 20 ? 1 << 20 : (ULONG)len;
        if (!RtlGenRandom(data, some)) {
            return FALSE;
        }
        data += some;
        len -= some;
    }
    return TRUE;
}
