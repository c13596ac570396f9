from setuptools import setup
from torch.utils.cpp_extension import BuildExtension, CppExtension

flags = ["-O2", "-Wall", "-Wextra", "-Wno-unused-parameter"]

setup(
    ext_modules=[
        CppExtension(
            "torch_lstsq_ext._C",
            ["csrc/contract.cpp", "csrc/dispatch.cpp", "csrc/register.cpp"],
            extra_compile_args=flags,
        ),
        CppExtension(
            "torch_lstsq_ext._simulator",
            ["csrc/simulator.cpp"],
            extra_compile_args=flags,
        ),
    ],
    cmdclass={"build_ext": BuildExtension},
)
