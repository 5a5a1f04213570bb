// Gives damaged bytes to what reads the cache, images and debug information. The arguments are PTX with debug
// information, and a cubin. Prints what was taken for undamaged.

#include <cuda_ext/on_demand/cubin.hpp>
#include <cuda_ext/on_demand/record.hpp>
#include <cuda_ext/on_demand/store.hpp>
#include <cuda_ext/on_demand/survey.hpp>

#include <cstdio>
#include <random>
#include <string>

namespace {

using namespace cuda_ext;

std::string content_of(const std::string& path) { return File(path, O_RDONLY).read(0, std::size_t{1} << 24); }

std::string sample_record() {
  Record record;
  record.architecture = "sm_90";
  record.image = std::string(
      "\x7f"
      "ELF-:3:\0image",
      13);
  const RecordedParameter x{"x", "const float*", "pointer", 8, 0, "float", true};
  const RecordedParameter n{"n", "int", "integer", 4, 8, std::nullopt, false};
  record.kernels = {{"axpy<float>", "_Z4axpyIfEv", {x, n}}, {"plain", "plain", {}}};
  record.symbols = {{"weights", "weights", "constant", "float[9]", 36}};
  return encoded(record);
}

// What can be read of bytes is what they were written from.
void damage_record() {
  const std::string whole = sample_record();
  if (!RecordReader(whole).record() || RecordReader(whole).reference()) std::puts("the record is not read");
  for (std::size_t size = 0; size < whole.size(); size++) {
    if (RecordReader(whole.substr(0, size)).record()) std::printf("%zu bytes of the record are read\n", size);
  }
  if (RecordReader(whole + "0:").record()) std::puts("something may follow");
  for (std::size_t i = 0; i < whole.size(); i++) {
    for (int flipped = 1; flipped < 256; flipped++) {
      std::string bytes = whole;
      bytes[i] = static_cast<char>(bytes[i] ^ flipped);
      const auto record = RecordReader(bytes).record();
      if (record && encoded(*record) != bytes) std::printf("a record with another byte %zu\n", i);
      if (RecordReader(bytes).reference()) std::printf("a reference with another byte %zu\n", i);
    }
  }
}

// The same in a cache, which takes nothing that is not whole.
void damage_entry() {
  const std::string key = sha256_hex("key");
  const std::string content = sample_record();
  const Store store;
  store.put(key, content);
  if (store.get(key) != content) std::puts("the entry is not found");
  const std::string path = cache_directory() + "/objects/" + key.substr(0, 2) + "/" + key.substr(2);
  const std::string entry = content_of(path);
  const auto is_found = [&](const std::string& bytes) {
    File(path, O_WRONLY | O_TRUNC).write(bytes);
    return store.get(key).has_value();
  };
  for (std::size_t size = 0; size < entry.size(); size++) {
    if (is_found(entry.substr(0, size))) std::printf("%zu bytes of the entry are found\n", size);
  }
  for (std::size_t i = 0; i < entry.size(); i++) {
    std::string bytes = entry;
    bytes[i] = static_cast<char>(bytes[i] ^ (1 << i % 8));
    if (is_found(bytes)) std::printf("the entry is found with another byte %zu\n", i);
  }
  if (is_found(entry + "x")) std::puts("the entry is found with more behind it");
  if (!is_found(entry)) std::puts("the entry is not found again");
}

void damage_images(const std::string& ptx, const std::string& cubin) {
  std::mt19937 chance(5);
  const auto damaged = [&](std::string bytes) {
    for (unsigned i = chance() % 8 + 1; i && !bytes.empty(); i--) {
      const std::size_t at = chance() % bytes.size();
      switch (chance() % 4) {
        case 0: bytes[at] = static_cast<char>(chance()); break;
        case 1: bytes[at] = "0123456789"[chance() % 10]; break;  // in PTX, another byte of debug information
        case 2: bytes.erase(at, chance() % 64); break;
        default: bytes.resize(at + 1); break;
      }
    }
    return bytes;
  };
  for (int i = 0; i < 1000; i++) {
    Surveyor(damaged(ptx)).survey({"unit.cu"});
    Cubin(damaged(cubin)).contents();
  }
  const std::string info = PtxSection::bytes(ptx, ".debug_info");
  const std::string abbreviations = PtxSection::bytes(ptx, ".debug_abbrev");
  for (int i = 0; i < 10000; i++) {
    const std::string damaged_info = damaged(info);
    const std::string damaged_abbreviations = chance() % 2 ? abbreviations : damaged(abbreviations);
    const DebugInfo found(damaged_info, damaged_abbreviations, "");
    TypeSpeller types(found);
    for (const std::size_t unit : found.units()) {
      found.for_each_child(unit, [&](const DebugEntry& entry, std::size_t) {
        types.spelled(found.type_of(entry));
        types.is_const(types.resolved(found.type_of(entry)));
      });
    }
  }
}

}  // namespace

int main(int, char** arguments) {
  damage_record();
  damage_entry();
  damage_images(content_of(arguments[1]), content_of(arguments[2]));
}
