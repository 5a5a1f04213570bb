from setuptools import Extension, setup

setup(ext_modules=[Extension("with_c_extension._answer", ["src/answer.c"])])
