"""Writes what makes a shared object a kernel library: for every kernel a
function that the executor calls, and the table that describes them all."""

ALLOW_POINTERS = "MSL_ALLOW_FUNCTION_POINTERS "
END_POINTERS = "MSL_END_FUNCTION_POINTERS"


def declarations(kernels):
    """Declares the thunks, some of which are defined in namespaces."""
    return "".join(
        _signature(number) + ";\n" for number in range(len(kernels))
    )


def _signature(number):
    return (
        'extern "C" void mps_emulator_msl_thunk_%d('
        "const mps_emulator_msl_launch *launch, "
        "uint x, uint y, uint z, uint count)" % number
    )


def thunk(number, kernel):
    """The function that runs a row of a kernel's threads, on one line."""
    text = [
        ALLOW_POINTERS,
        _signature(number) + " { ",
    ]
    arguments = []
    for index, parameter in enumerate(kernel.parameters):
        if parameter.kind == "builtin":
            arguments.append(builtin(parameter))
        else:
            text.append(_buffer(index, parameter))
            arguments.append("__msl_buffer_%d" % index)
    text += [
        "for (uint i = 0; i < count; ++i) { ",
        "__msl::place at = {launch, {x + i, y, z}}; ",
        "(%s)(%s); " % (kernel.function, ", ".join(arguments)),
        "} } ",
        END_POINTERS,
    ]
    return "".join(text)


def _buffer(index, parameter):
    """A buffer argument, taken out of the launch before the loop."""
    return "__msl::buffer_%s __msl_buffer_%d = {launch->%s[%d]}; " % (
        "reference" if parameter.by_reference else "pointer",
        index,
        "threadgroup_buffers"
        if parameter.kind == "threadgroup"
        else "buffers",
        parameter.index,
    )


def builtin(parameter):
    """What a kernel gets for an attribute like [[thread_position_in_grid]]."""
    values = ", ".join(
        "at.%s(%d)" % (parameter.builtin, d)
        for d in range(parameter.components)
    )
    count = "" if parameter.components == 1 else str(parameter.components)
    return "::__msl::make<%s%s>(%s)" % (parameter.scalar, count, values)


def tables(kernels):
    """The description of the library, with `kernels` in thunks' order."""
    lines = ["", ALLOW_POINTERS]
    for number, kernel in enumerate(kernels):
        lines += _parameter_table(number, kernel)
        lines += _constant_table(number, kernel)
    lines.append(
        "static const mps_emulator_msl_kernel mps_emulator_msl_kernels[] = {"
    )
    for number, kernel in enumerate(kernels):
        lines.append(
            '  {"%s", &mps_emulator_msl_thunk_%d, %s, %d, %s, %d, %d, %d, %s},'
            % (
                _escape(kernel.name),
                number,
                "mps_emulator_msl_parameters_%d" % number,
                len(kernel.parameters),
                "mps_emulator_msl_constants_%d" % number,
                len(kernel.function_constants),
                kernel.static_threadgroup_bytes,
                kernel.max_total_threads,
                "kMpsEmulatorMslNeedsFibers" if kernel.suspends else "0",
            )
        )
    lines += [
        "  {}};",  # a program without kernels is one all the same
        'extern "C" __attribute__((visibility("default")))',
        "const mps_emulator_msl_module mps_emulator_msl_description = {",
        "  kMpsEmulatorMslAbiVersion, %d, mps_emulator_msl_kernels,"
        % len(kernels),
        "  &mps_emulator_msl_runtime_in_use};",
        END_POINTERS,
        "",
    ]
    return "\n".join(lines)


def _parameter_table(number, kernel):
    kinds = {
        "buffer": "kMpsEmulatorMslBuffer",
        "threadgroup": "kMpsEmulatorMslThreadgroup",
        "builtin": "kMpsEmulatorMslBuiltin",
    }
    lines = [
        "static const mps_emulator_msl_parameter "
        "mps_emulator_msl_parameters_%d[] = {" % number
    ]
    for parameter in kernel.parameters:
        lines.append(
            '  {"%s", %s, %d, %d, %d, %d, %d, %d, %d},'
            % (
                _escape(parameter.name),
                kinds[parameter.kind],
                parameter.index or 0,
                parameter.writable,
                parameter.by_reference,
                parameter.active,
                parameter.constant,
                parameter.element_size,
                parameter.alignment,
            )
        )
    lines.append("  {}};")
    return lines


def _constant_table(number, kernel):
    lines = [
        "static const mps_emulator_msl_function_constant "
        "mps_emulator_msl_constants_%d[] = {" % number
    ]
    for constant in kernel.function_constants:
        lines.append(
            '  {"%s", "%s", %s, %d},'
            % (
                _escape(constant.name),
                _escape(constant.type),
                constant.index_text,
                constant.value is not None,
            )
        )
    lines.append("  {}};")
    return lines


def _escape(text):
    return text.replace("\\", "\\\\").replace('"', '\\"')
