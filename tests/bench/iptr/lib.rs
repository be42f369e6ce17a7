//! The edge analyzer of iptr behind C functions, for tests/bench/fuzz_peers.cpp.
use std::ffi::c_void;
use std::slice;

use iptr_decoder::DecodeOptions;
use iptr_edge_analyzer::{
    EdgeAnalyzer, ReadMemory, control_flow_handler::fuzz_bitmap::FuzzBitmapControlFlowHandler,
};

/// Known text: `size` bytes at `address`. Sorted by address.
#[repr(C)]
pub struct IptrText {
    address: u64,
    size: u64,
    bytes: *const u8,
}

struct Reader(&'static [IptrText]);

#[derive(Debug, thiserror::Error)]
#[error("no text at {0:#x}")]
struct NoText(u64);

impl ReadMemory for Reader {
    type Error = NoText;
    fn at_decode_begin(&mut self) -> Result<(), NoText> {
        Ok(())
    }
    fn read_memory<T>(&mut self, address: u64, size: usize, callback: impl FnOnce(&[u8]) -> T) -> Result<T, NoText> {
        let next = self.0.partition_point(|t| t.address <= address);
        let text = self.0[..next].last().ok_or(NoText(address))?;
        let at = address - text.address;
        if at >= text.size {
            return Err(NoText(address));
        }
        let n = size.min((text.size - at) as usize);
        Ok(callback(unsafe { slice::from_raw_parts(text.bytes.add(at as usize), n) }))
    }
}

type Analyzer = EdgeAnalyzer<FuzzBitmapControlFlowHandler<Box<[u8]>>, Reader>;

#[unsafe(no_mangle)]
pub unsafe extern "C" fn iptr_new(text: *const IptrText, count: usize, map_size: usize) -> *mut c_void {
    let text = unsafe { slice::from_raw_parts(text, count) };
    let map = vec![0u8; map_size].into_boxed_slice();
    Box::into_raw(Box::new(Analyzer::new(FuzzBitmapControlFlowHandler::new(map, None), Reader(text)))).cast()
}

/// 0, or 1 where it stopped; `message` gets why.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iptr_decode(analyzer: *mut c_void, bytes: *const u8, size: usize, message: *mut u8, room: usize) -> i32 {
    let analyzer = unsafe { &mut *analyzer.cast::<Analyzer>() };
    let bytes = unsafe { slice::from_raw_parts(bytes, size) };
    match iptr_decoder::decode(bytes, DecodeOptions::default(), analyzer) {
        Ok(()) => 0,
        Err(error) => {
            let mut text = error.to_string();
            let mut source = std::error::Error::source(&error);
            while let Some(e) = source {
                text += ": ";
                text += &e.to_string();
                source = e.source();
            }
            let n = text.len().min(room.saturating_sub(1));
            unsafe {
                std::ptr::copy_nonoverlapping(text.as_ptr(), message, n);
                *message.add(n) = 0;
            }
            1
        }
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn iptr_free(analyzer: *mut c_void) {
    drop(unsafe { Box::from_raw(analyzer.cast::<Analyzer>()) });
}
