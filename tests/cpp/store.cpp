// Damages what the cache contains, and fills it; prints what is wrong. The directory is CUDA_EXT_CACHE.

#include <cstdio>
#include <cuda_ext/on_demand/store.hpp>
#include <fstream>
#include <string>
#include <vector>

namespace {

using namespace cuda_ext;

void write_bytes(const fs::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

void damage_entry() {
  const std::string key = sha256("key");
  const std::string content("3:abc\0-", 7);
  const Store store;
  store.put(key, content);
  if (store.get(key) != content) std::puts("the entry is not found");
  const fs::path path = cache_directory() / "objects" / hexadecimal(key.substr(0, 1)) / hexadecimal(key.substr(1));
  const std::string entry = read_file(path);
  const auto is_found = [&](const std::string& bytes) {
    write_bytes(path, bytes);
    return !store.get(key).empty();
  };
  for (std::size_t size = 0; size < entry.size(); size++) {
    if (is_found(entry.substr(0, size))) std::printf("%zu bytes of the entry are found\n", size);
    std::string bytes = entry;
    bytes[size] = static_cast<char>(bytes[size] ^ (1 << size % 8));
    if (is_found(bytes)) std::printf("the entry is found with another byte %zu\n", size);
  }
  if (is_found(entry + "x")) std::puts("the entry is found with more behind it");
  if (!is_found(entry)) std::puts("the entry is not found again");
}

void damage_fields() {
  const char* const names[] = {"a", "b"};
  const std::string whole = encode({"axpy<float>", "", 12, std::string_view("\0:", 2)}) +
                            encode_list({names, 2});
  if (decode(whole).size() != 7) std::puts("the fields are not read");
  for (std::size_t size = 1; size < whole.size(); size++) {
    for (int flipped = 0; flipped < 256; flipped++) {
      std::string bytes = whole.substr(0, size);
      bytes[size - 1] = static_cast<char>(flipped);
      std::string again;
      for (const std::string_view field : decode(bytes)) again += encode({field});
      if (!again.empty() && again.size() > bytes.size()) std::puts("fields overlap");
    }
  }
}

// With a bound of 10,000 bytes: entries of 1,000 bytes, of which the first are used again.
void fill() {
  const Store store;
  for (int i = 0; i < 200; i++) {
    store.put(sha256(encode({i})), std::string(1000, 'x'));
    store.get(sha256(encode({0})));
  }
  std::uintmax_t total = 0;
  for (const auto& entry : fs::recursive_directory_iterator(cache_directory() / "objects")) {
    if (entry.is_regular_file()) total += entry.file_size();
  }
  // What is still being written stays; so does what is not the cache's.
  const fs::path shard = cache_directory() / "objects" / hexadecimal(sha256(encode({0})).substr(0, 1));
  const std::vector<fs::path> others{name_beside(shard / "entry"), shard / "notes"};
  for (const fs::path& other : others) write_bytes(other, "x");
  for (int i = 200; i < 264; i++) store.put(sha256(encode({i})), std::string(1000, 'x'));
  for (const fs::path& other : others) {
    if (!fs::exists(other)) std::puts("a file of others is removed");
  }
  // It is pruned at one of sixteen.
  if (total > 10'000 + 64 * 1'072) std::printf("the cache has %zu bytes\n", static_cast<std::size_t>(total));
}

}  // namespace

int main() {
  // FIPS 180-4, and one whose padding needs a block of its own
  if (hexadecimal(sha256("abc")).substr(0, 16) != "ba7816bf8f01cfea") std::puts("the digest of abc is wrong");
  if (hexadecimal(sha256(std::string(56, 'a'))).substr(0, 16) != "b35439a4ac6f0948")
    std::puts("the digest of a... is wrong");
  damage_entry();
  damage_fields();
  fill();
}
