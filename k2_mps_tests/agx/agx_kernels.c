/* Compiles a kernel in SPIR-V with Mesa's compiler for Apple's G13, the GPU of
 * the M1, and prints what Mesa reports, in one line.
 *
 *    agx_kernels FILE.spv KERNEL THREADS
 *
 * THREADS is the most threads of a threadgroup.  Calls of functions of AIR
 * become instructions of NIR, Mesa's representation of programs.
 */
#include "asahi/compiler/agx_compile.h"
#include "compiler/spirv/nir_spirv.h"
#include "nir.h"
#include "nir_builder.h"
#include "util/os_file.h"
#include "util/u_debug.h"

/* Uniform registers, in units of 16 bits. */
enum { kWorkgroupSize = 0, kNumWorkgroups = 6, kConstants = 12, kInputs = 16 };

static nir_def *uniform(nir_builder *b, unsigned components, unsigned bit_size,
                        unsigned at) {
  return nir_load_preamble(b, components, bit_size, .base = at);
}

static nir_def *workgroup_size(nir_builder *b) {
  return uniform(b, 3, 32, kWorkgroupSize);
}

/* The value that the GPU computes for a kernel's parameter. */
static nir_def *builtin(nir_builder *b, const char *name) {
  if (!strcmp(name, "thread_position_in_grid"))
    return nir_load_global_invocation_id(b, 32);
  if (!strcmp(name, "threadgroup_position_in_grid"))
    return nir_load_workgroup_id(b);
  if (!strcmp(name, "thread_position_in_threadgroup"))
    return nir_load_local_invocation_id(b);
  if (!strcmp(name, "thread_index_in_threadgroup"))
    return nir_load_local_invocation_index(b);
  if (!strcmp(name, "thread_index_in_simdgroup"))
    return nir_load_subgroup_invocation(b);
  if (!strcmp(name, "simdgroup_index_in_threadgroup"))
    return nir_load_subgroup_id(b);
  if (!strcmp(name, "threads_per_threadgroup")) return workgroup_size(b);
  if (!strcmp(name, "threadgroups_per_grid"))
    return uniform(b, 3, 32, kNumWorkgroups);
  if (!strcmp(name, "threads_per_grid"))
    return nir_imul(b, workgroup_size(b), uniform(b, 3, 32, kNumWorkgroups));
  if (!strcmp(name, "simdgroups_per_threadgroup"))
    return nir_load_num_subgroups(b);
  return NULL;
}

static nir_def *atomic(nir_builder *b, nir_def **a, const char *name) {
  const bool shared = !strncmp(name, "local.", 6);
  nir_variable_mode mode = shared ? nir_var_mem_shared : nir_var_mem_global;
  nir_deref_instr *place =
      nir_build_deref_cast(b, a[0], mode, glsl_uint_type(), 4);
  const char *operation = strchr(name, '.') + 1;
  if (!strncmp(operation, "load.", 5))
    return nir_load_deref_with_access(b, place, ACCESS_COHERENT);
  if (!strncmp(operation, "store.", 6)) {
    nir_store_deref_with_access(b, place, a[1], 1, ACCESS_COHERENT);
    return NULL;
  }
  static const struct {
    const char *name;
    nir_atomic_op op;
  } ops[] = {
      {"add.s.", nir_atomic_op_iadd}, {"or.s.", nir_atomic_op_ior},
      {"max.s.", nir_atomic_op_imax}, {"min.s.", nir_atomic_op_imin},
      {"max.u.", nir_atomic_op_umax}, {"min.u.", nir_atomic_op_umin},
  };
  for (unsigned i = 0; i < ARRAY_SIZE(ops); ++i) {
    if (!strncmp(operation, ops[i].name, strlen(ops[i].name)))
      return nir_deref_atomic(b, 32, &place->def, a[1], .atomic_op = ops[i].op);
  }
  fprintf(stderr, "no atomic operation %s\n", name);
  exit(1);
}

static nir_def *barrier(nir_builder *b, mesa_scope scope) {
  nir_barrier(b, .execution_scope = scope, .memory_scope = scope,
              .memory_semantics = NIR_MEMORY_ACQ_REL,
              .memory_modes = nir_var_mem_shared | nir_var_mem_global);
  return NULL;
}

/* Apple's code for exp() is not known; it has more instructions if it is more
 * exact. */
static nir_def *exponential(nir_builder *b, nir_def *x) {
  return nir_fexp2(b, nir_fmul_imm(b, x, M_LOG2E));
}

/* The result of a function of AIR; `name` lacks "air.".  NULL if the function
 * returns nothing. */
static nir_def *call(nir_builder *b, const char *name, nir_def **a,
                     unsigned bit_size) {
  if (!strcmp(name, "wg.barrier")) return barrier(b, SCOPE_WORKGROUP);
  if (!strcmp(name, "simdgroup.barrier")) return barrier(b, SCOPE_SUBGROUP);
  if (!strncmp(name, "atomic.", 7)) return atomic(b, a, name + 7);

  /* NAME.TYPE: the type begins with f, s. or u. */
  char base[64];
  snprintf(base, sizeof(base), "%.*s", (int)strcspn(name, "."), name);
  const char *type = name + strlen(base);
  type += *type == '.';
  const bool is_float = strchr(type, 'f') != NULL, is_signed = type[0] == 's';
#define IS(text) (!strcmp(base, text))
  if (IS("convert")) {
    /* convert.TO.FROM, such as convert.f.f32.s.i32 */
    const char from = strchr(type + 2, '.')[1];
    if (type[0] == 'f')
      return from == 's'   ? nir_i2fN(b, nir_i2i32(b, a[0]), bit_size)
             : from == 'u' ? nir_u2fN(b, nir_u2u32(b, a[0]), bit_size)
                           : nir_f2fN(b, a[0], bit_size);
    return type[0] == 's' ? nir_f2iN(b, a[0], bit_size)
                          : nir_f2uN(b, a[0], bit_size);
  }
  if (IS("fma")) return nir_ffma(b, a[0], a[1], a[2]);
  if (IS("fabs")) return nir_fabs(b, a[0]);
  if (IS("floor")) return nir_ffloor(b, a[0]);
  if (IS("rint")) return nir_fround_even(b, a[0]);
  if (IS("fmax")) return nir_fmax(b, a[0], a[1]);
  if (IS("fmin")) return nir_fmin(b, a[0], a[1]);
  if (IS("clamp")) return nir_fmin(b, nir_fmax(b, a[0], a[1]), a[2]);
  if (IS("exp") || IS("fast_exp")) return exponential(b, a[0]);
  if (IS("log") || IS("fast_log"))
    return nir_fmul_imm(b, nir_flog2(b, a[0]), M_LN2);
  if (IS("sqrt")) return nir_fsqrt(b, a[0]);
  if (IS("tanh")) {
    /* 1 - 2 / (exp(2 x) + 1) */
    nir_def *e = exponential(b, nir_fmul_imm(b, a[0], 2));
    nir_def *q = nir_frcp(b, nir_fadd_imm(b, e, 1));
    return nir_ffma_imm12(b, q, -2, 1);
  }
  if (IS("frexp")) {
    nir_deref_instr *exponent = nir_build_deref_cast(
        b, a[1], nir_var_function_temp, glsl_int_type(), 4);
    nir_store_deref(b, exponent, nir_frexp_exp(b, a[0]), 1);
    return nir_frexp_sig(b, a[0]);
  }
  if (IS("abs")) return nir_iabs(b, a[0]);
  if (IS("max"))
    return is_signed ? nir_imax(b, a[0], a[1]) : nir_umax(b, a[0], a[1]);
  if (IS("min"))
    return is_signed ? nir_imin(b, a[0], a[1]) : nir_umin(b, a[0], a[1]);
  if (IS("popcount")) return nir_bit_count(b, a[0]);
  if (IS("clz")) return nir_isub_imm(b, 31, nir_ufind_msb(b, a[0]));
  if (IS("ctz")) return nir_find_lsb(b, a[0]);
  if (IS("simd_sum"))
    return nir_reduce(b, a[0],
                      .reduction_op = is_float ? nir_op_fadd : nir_op_iadd);
  if (IS("simd_max"))
    return nir_reduce(b, a[0],
                      .reduction_op = is_float    ? nir_op_fmax
                                      : is_signed ? nir_op_imax
                                                  : nir_op_umax);
  if (IS("simd_min"))
    return nir_reduce(b, a[0],
                      .reduction_op = is_float    ? nir_op_fmin
                                      : is_signed ? nir_op_imin
                                                  : nir_op_umin);
  if (IS("simd_or")) return nir_reduce(b, a[0], .reduction_op = nir_op_ior);
  if (IS("simd_prefix_exclusive_sum"))
    return nir_exclusive_scan(
        b, a[0], .reduction_op = is_float ? nir_op_fadd : nir_op_iadd);
  if (IS("simd_prefix_inclusive_sum"))
    return nir_inclusive_scan(
        b, a[0], .reduction_op = is_float ? nir_op_fadd : nir_op_iadd);
  if (IS("simd_any")) return nir_vote_any(b, 1, a[0]);
  if (IS("simd_all")) return nir_vote_all(b, 1, a[0]);
  if (IS("simd_ballot")) return nir_u2u64(b, nir_ballot(b, 1, 32, a[0]));
  if (!strncmp(base, "simd_", 5)) {
    nir_def *lane = nir_u2u32(b, a[1]);
    if (IS("simd_broadcast")) return nir_read_invocation(b, a[0], lane);
    if (IS("simd_shuffle")) return nir_shuffle(b, a[0], lane);
    if (IS("simd_shuffle_xor")) return nir_shuffle_xor(b, a[0], lane);
    if (IS("simd_shuffle_up")) return nir_shuffle_up(b, a[0], lane);
    if (IS("simd_shuffle_down")) return nir_shuffle_down(b, a[0], lane);
  }
#undef IS
  fprintf(stderr, "no function %s\n", name);
  exit(1);
}

static bool lower_call(nir_builder *b, nir_instr *instr, void *data) {
  if (instr->type != nir_instr_type_call) return false;
  nir_call_instr *made = nir_instr_as_call(instr);
  const char *name = made->callee->name;
  if (strncmp(name, "air.", 4)) return false;
  name += 4;
  b->cursor = nir_before_instr(instr);

  nir_def *arguments[4] = {NULL}, *value;
  /* The first parameter is the place of the result. */
  nir_deref_instr *result = NULL;
  unsigned first = 0, bit_size = 0;
  if (made->num_params && made->callee->params[0].is_return) {
    result = nir_src_as_deref(made->params[first++]);
    bit_size = glsl_get_bit_size(result->type);
  }
  for (unsigned i = first; i < made->num_params && i - first < 4; ++i)
    arguments[i - first] = made->params[i].ssa;

  if (!strncmp(name, "builtin.", 8)) {
    /* builtin.NAME.COMPONENT */
    char *kind = ralloc_strdup(NULL, name + 8), *dot = strrchr(kind, '.');
    *dot = 0;
    value = builtin(b, kind);
    if (!value) {
      fprintf(stderr, "no built-in value %s\n", kind);
      exit(1);
    }
    if (value->num_components > 1) value = nir_channel(b, value, atoi(dot + 1));
    value = nir_u2uN(b, value, bit_size);
    ralloc_free(kind);
  } else {
    value = call(b, name, arguments, bit_size);
  }
  if (result)
    nir_store_deref(b, result, value,
                    nir_component_mask(value->num_components));
  nir_instr_remove(instr);
  return true;
}

static bool lower_input(nir_builder *b, nir_intrinsic_instr *intr, void *data) {
  nir_def *value;
  b->cursor = nir_before_instr(&intr->instr);
  switch (intr->intrinsic) {
    case nir_intrinsic_load_kernel_input: {
      unsigned at = nir_intrinsic_base(intr) + nir_src_as_uint(intr->src[0]);
      unsigned *end = data;
      value = uniform(b, intr->num_components, intr->def.bit_size,
                      kInputs + at / 2);
      *end = MAX2(*end, kInputs + at / 2 +
                            intr->num_components * intr->def.bit_size / 16);
      break;
    }
    case nir_intrinsic_load_workgroup_size:
      value = workgroup_size(b);
      break;
    case nir_intrinsic_load_num_workgroups:
      value = uniform(b, 3, 32, kNumWorkgroups);
      break;
    case nir_intrinsic_load_constant_base_ptr:
      value = uniform(b, 1, 64, kConstants);
      break;
    default:
      return false;
  }
  nir_def_replace(&intr->def, value);
  return true;
}

/* Variables become values, and constant expressions constants, as far as the
 * lowering of addresses needs it.  agx_compile_shader_nir() optimizes the
 * rest. */
static void simplify(nir_shader *nir) {
  static bool (*const passes[])(nir_shader *) = {
      nir_lower_vars_to_ssa, nir_opt_copy_prop_vars,   nir_opt_deref,
      nir_copy_prop,         nir_opt_constant_folding, nir_opt_algebraic,
      nir_opt_cse,           nir_opt_remove_phis,      nir_opt_dead_cf,
      nir_opt_dce,
  };
  unsigned unchanged = 0;
  for (unsigned i = 0; unchanged < ARRAY_SIZE(passes); ++i) {
    ++unchanged;
    if (passes[i % ARRAY_SIZE(passes)](nir)) unchanged = 0;
  }
}

static void report(void *data, unsigned *id, enum util_debug_type type,
                   const char *format, va_list arguments) {
  vprintf(format, arguments);
  printf("\n");
}

static void compile(const char *file, const char *kernel, unsigned threads) {
  /* A generic pointer has 62 bits of an address, and 2 that tell the memory. */
  const nir_address_format generic = nir_address_format_62bit_generic;
  struct spirv_to_nir_options options = {.environment = NIR_SPIRV_OPENCL};
  options.temp_addr_format = options.shared_addr_format = generic;
  options.global_addr_format = generic;
  options.constant_addr_format = nir_address_format_64bit_global;
  size_t size;
  char *words = os_read_file(file, &size);
  if (!words) {
    fprintf(stderr, "cannot read %s\n", file);
    exit(1);
  }
  nir_shader *nir =
      spirv_to_nir((const uint32_t *)words, size / 4, NULL, 0,
                   MESA_SHADER_KERNEL, kernel, &options, &agx_nir_options);
  if (!nir) {
    fprintf(stderr, "Mesa cannot read %s\n", file);
    exit(1);
  }
  free(words);
  /* One function, without calls. */
  nir_shader_instructions_pass(nir, lower_call, nir_metadata_none, NULL);
  nir_lower_returns(nir);
  nir_inline_functions(nir);
  nir_remove_non_entrypoints(nir);

  /* Constants in tables: their values are not written by code. */
  nir_lower_variable_initializers(nir, ~nir_var_mem_constant);
  nir_split_var_copies(nir);
  nir_lower_var_copies(nir);
  simplify(nir);
  nir_remove_dead_variables(nir, nir_var_all, NULL);

  /* Addresses in place of variables. */
  const nir_variable_mode memory =
      nir_var_function_temp | nir_var_mem_shared | nir_var_mem_global;
  nir_lower_vars_to_explicit_types(
      nir, memory | nir_var_shader_temp | nir_var_uniform | nir_var_mem_constant,
      glsl_get_cl_type_size_align);
  nir_lower_memcpy(nir);
  nir_lower_explicit_io(nir, nir_var_mem_shared, generic);
  nir_lower_explicit_io(nir, nir_var_uniform,
                        nir_address_format_32bit_offset_as_64bit);
  nir_lower_explicit_io(nir, nir_var_mem_constant,
                        nir_address_format_64bit_global);

  /* The ids of threads. */
  nir_lower_system_values(nir);
  nir_lower_compute_system_values_options values = {.global_id_is_32bit = true};
  nir_lower_compute_system_values(nir, &values);
  simplify(nir);
  unsigned uniforms = kInputs;
  nir_shader_intrinsics_pass(nir, lower_input, nir_metadata_control_flow,
                             &uniforms);

  nir->info.stage = MESA_SHADER_COMPUTE;
  nir->info.workgroup_size_variable = false;
  nir->info.workgroup_size[0] = threads;
  nir->info.workgroup_size[1] = nir->info.workgroup_size[2] = 1;

  nir_shader *library =
      nir_shader_create(NULL, MESA_SHADER_KERNEL, &agx_nir_options, NULL);
  agx_preprocess_nir(nir, library);
  /* num_subgroups becomes a quotient of workgroup_size. */
  nir_shader_intrinsics_pass(nir, lower_input, nir_metadata_control_flow,
                             &uniforms);
  struct agx_shader_key key = {
      .libagx = library,
      .has_scratch = true,
      .promote_constants = true,
      .reserved_preamble = uniforms,
      .dev.needs_g13x_coherency = U_TRISTATE_NO,
  };
  struct util_debug_callback debug = {.debug_message = report};
  struct agx_shader_part out;
  agx_compile_shader_nir(nir, &key, &debug, &out);
  free(out.binary);
  ralloc_free(library);
  ralloc_free(nir);
}

int main(int argc, char **argv) {
  if (argc != 4) {
    fprintf(stderr, "usage: agx_kernels FILE.spv KERNEL THREADS\n");
    return 2;
  }
  /* This pass of Mesa 25.0 replaces 8-bit values by 16-bit constants. */
  setenv("NIR_SKIP", "nir_opt_phi_precision", 1);
  /* Without this setting, Mesa warns of the functions without code. */
  setenv("MESA_SPIRV_LOG_LEVEL", "error", 1);
  glsl_type_singleton_init_or_ref();
  compile(argv[1], argv[2], atoi(argv[3]));
  glsl_type_singleton_decref();
  return 0;
}
