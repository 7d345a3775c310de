// LLVM's archives refer to zstd for compressed sections of object files. Programs made here have none, so that the extension does not
// need the library: these definitions refuse.
#include <cstddef>

extern "C" {

constexpr std::size_t zstd_error = static_cast<std::size_t>(-1);
void* ZSTD_createCCtx() { return nullptr; }
std::size_t ZSTD_freeCCtx(void*) { return 0; }
std::size_t ZSTD_CCtx_setParameter(void*, int, int) { return zstd_error; }
std::size_t ZSTD_compress2(void*, void*, std::size_t, const void*, std::size_t) { return zstd_error; }
std::size_t ZSTD_compressBound(std::size_t size) { return size; }
std::size_t ZSTD_decompress(void*, std::size_t, const void*, std::size_t) { return zstd_error; }
unsigned ZSTD_isError(std::size_t code) { return code == zstd_error ? 1u : 0u; }
const char* ZSTD_getErrorName(std::size_t) { return "zstd is not part of this build"; }

}  // extern "C"
