//! Launches a kernel through the C interface of its module, `<app/kernels.h>`.

use std::ffi::{c_char, c_int, c_void, CStr};
use std::{process, ptr};

/// What bindgen writes for the header.
mod kernels {
    use super::*;

    #[repr(C)]
    pub struct Error {
        pub kind: c_int,
        pub message: *const c_char,
        pub code: c_int,
    }

    #[repr(C)]
    pub struct Launch {
        pub grid: [u32; 3],
        pub block: [u32; 3],
        pub stream: *mut c_void,
        pub shared: usize,
        pub cluster: [u32; 3],
        pub cooperative: bool,
        pub dependent: bool,
    }

    pub const AXPY_FLOAT: usize = 1;

    #[repr(C)]
    pub struct AxpyFloatArguments {
        pub n: i32,
        pub a: f32,
        pub x: *const f32,
        pub y: *mut f32,
    }

    extern "C" {
        pub fn app_kernels_launch(kernel: usize, launch: *const Launch, arguments: *const c_void) -> *const Error;
        pub fn app_kernels_release(error: *const Error);
    }
}

/// Computes `y += a * x` for `n` numbers on the GPU, to which `x` and `y` belong.
fn axpy(n: i32, a: f32, x: *const f32, y: *mut f32) -> Result<(), String> {
    let launch = kernels::Launch {
        grid: [(n as u32).div_ceil(256).max(1), 1, 1],
        block: [256, 1, 1],
        stream: ptr::null_mut(),
        shared: 0,
        cluster: [0; 3],
        cooperative: false,
        dependent: false,
    };
    let arguments = kernels::AxpyFloatArguments { n, a, x, y };
    unsafe {
        let error = kernels::app_kernels_launch(kernels::AXPY_FLOAT, &launch, &arguments as *const _ as *const c_void);
        if error.is_null() {
            return Ok(());
        }
        let message = CStr::from_ptr((*error).message).to_string_lossy().into_owned();
        kernels::app_kernels_release(error);
        Err(message)
    }
}

fn main() {
    // The example allocates no memory on the GPU, so the kernel gets no numbers.
    if let Err(message) = axpy(0, 2.0, ptr::null(), ptr::null_mut()) {
        println!("{message}");
        process::exit(1);
    }
    println!("launched");
}
