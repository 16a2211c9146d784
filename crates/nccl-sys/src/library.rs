//! The library as a table of function pointers.

use std::path::PathBuf;

use core::ffi::{c_char, c_int, c_void};
use loader::library_table;

use crate::types::*;

library_table! {
    /// A loaded NCCL or RCCL.
    ///
    /// Each field is the function of its name; those that are `Option`s are newer than the oldest library supported
    /// (2.18).
    pub struct Nccl opens "the NCCL library";
    required {
        /// The version, as `major * 10000 + minor * 100 + patch`. Works without a GPU and says nothing of one.
        fn ncclGetVersion(version: *mut c_int) -> ncclResult_t;
        /// A new identity for a communicator. The process that made it must stay while the others join.
        fn ncclGetUniqueId(id: *mut ncclUniqueId) -> ncclResult_t;
        /// Joins a communicator as `rank` of `nranks`, on the current device.
        fn ncclCommInitRankConfig(
            comm: *mut ncclComm_t, nranks: c_int, id: ncclUniqueId, rank: c_int, config: *mut ncclConfig_t,
        ) -> ncclResult_t;
        /// Flushes what is outstanding; before a destroy.
        fn ncclCommFinalize(comm: ncclComm_t) -> ncclResult_t;
        /// Frees a communicator.
        fn ncclCommDestroy(comm: ncclComm_t) -> ncclResult_t;
        /// Frees a communicator and gives up what is outstanding.
        fn ncclCommAbort(comm: ncclComm_t) -> ncclResult_t;
        /// What has become of a communicator, and of a non-blocking call on it.
        fn ncclCommGetAsyncError(comm: ncclComm_t, error: *mut ncclResult_t) -> ncclResult_t;
        /// A result in words; static.
        fn ncclGetErrorString(result: ncclResult_t) -> *const c_char;
        /// More words about the last error of this thread; may be empty.
        fn ncclGetLastError(comm: ncclComm_t) -> *const c_char;
        /// Begins a group: calls until its end are issued together.
        fn ncclGroupStart() -> ncclResult_t;
        /// Ends a group.
        fn ncclGroupEnd() -> ncclResult_t;
        /// Reduces and gives all ranks the result.
        fn ncclAllReduce(
            send: *const c_void, recv: *mut c_void, count: usize, datatype: ncclDataType_t, op: ncclRedOp_t,
            comm: ncclComm_t, stream: cudaStream_t,
        ) -> ncclResult_t;
        /// Reduces and gives `root` the result.
        fn ncclReduce(
            send: *const c_void, recv: *mut c_void, count: usize, datatype: ncclDataType_t, op: ncclRedOp_t,
            root: c_int, comm: ncclComm_t, stream: cudaStream_t,
        ) -> ncclResult_t;
        /// Gives all ranks what `root` has.
        fn ncclBroadcast(
            send: *const c_void, recv: *mut c_void, count: usize, datatype: ncclDataType_t, root: c_int,
            comm: ncclComm_t, stream: cudaStream_t,
        ) -> ncclResult_t;
        /// Reduces and gives each rank its part.
        fn ncclReduceScatter(
            send: *const c_void, recv: *mut c_void, recv_count: usize, datatype: ncclDataType_t, op: ncclRedOp_t,
            comm: ncclComm_t, stream: cudaStream_t,
        ) -> ncclResult_t;
        /// Gives all ranks what each has.
        fn ncclAllGather(
            send: *const c_void, recv: *mut c_void, send_count: usize, datatype: ncclDataType_t, comm: ncclComm_t,
            stream: cudaStream_t,
        ) -> ncclResult_t;
        /// Sends to a peer, which receives as much.
        fn ncclSend(
            send: *const c_void, count: usize, datatype: ncclDataType_t, peer: c_int, comm: ncclComm_t,
            stream: cudaStream_t,
        ) -> ncclResult_t;
        /// Receives from a peer, which sends as much.
        fn ncclRecv(
            recv: *mut c_void, count: usize, datatype: ncclDataType_t, peer: c_int, comm: ncclComm_t,
            stream: cudaStream_t,
        ) -> ncclResult_t;
    }
    optional {
        /// Memory that NCCL can use best; since 2.19.
        fn ncclMemAlloc(pointer: *mut *mut c_void, size: usize) -> ncclResult_t;
        /// Frees such memory; since 2.19.
        fn ncclMemFree(pointer: *mut c_void) -> ncclResult_t;
        /// Registers a buffer with a communicator; since 2.19.
        fn ncclCommRegister(
            comm: ncclComm_t, buffer: *mut c_void, size: usize, handle: *mut *mut c_void,
        ) -> ncclResult_t;
        /// Ends a registration; since 2.19.
        fn ncclCommDeregister(comm: ncclComm_t, handle: *mut c_void) -> ncclResult_t;
        /// Gives each rank its part of what each has; since 2.28.
        fn ncclAlltoAll(
            send: *const c_void, recv: *mut c_void, count: usize, datatype: ncclDataType_t, comm: ncclComm_t,
            stream: cudaStream_t,
        ) -> ncclResult_t;
        /// Gives `root` what each has; since 2.28.
        fn ncclGather(
            send: *const c_void, recv: *mut c_void, count: usize, datatype: ncclDataType_t, root: c_int,
            comm: ncclComm_t, stream: cudaStream_t,
        ) -> ncclResult_t;
        /// Gives each rank its part of what `root` has; since 2.28.
        fn ncclScatter(
            send: *const c_void, recv: *mut c_void, count: usize, datatype: ncclDataType_t, root: c_int,
            comm: ncclComm_t, stream: cudaStream_t,
        ) -> ncclResult_t;
    }
}

impl Nccl {
    /// The file that the loader found, where it says so.
    pub fn file(&self) -> Option<PathBuf> {
        loader::file_of(self.ncclGetVersion as usize)
    }

    /// The version, as `major * 10000 + minor * 100 + patch`; `None` where the library does not say.
    pub fn version(&self) -> Option<u32> {
        let mut version = 0;
        // SAFETY: `version` is ours.
        let result = unsafe { (self.ncclGetVersion)(&mut version) };
        (result == ncclSuccess).then_some(version).and_then(|version| u32::try_from(version).ok())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_library_is_an_error_that_names_the_first_missing_function() {
        let error = Nccl::open("libc.so.6").unwrap_err();
        assert_eq!(error.to_string(), "cannot use the NCCL library libc.so.6: it has no ncclGetVersion");
    }

    #[test]
    fn a_library_with_all_that_is_required_opens_and_says_what_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let (source, library) = (folder.path().join("stub.c"), folder.path().join("libstub.so"));
        let stub = |name: &&&str| match **name {
            "ncclGetVersion" => "int ncclGetVersion(int *v) { *v = 21805; return 0; }\n".to_owned(),
            other => format!("int {other}(void) {{ return 1; }}\n"),
        };
        std::fs::write(
            &source,
            Nccl::REQUIRED.iter().collect::<Vec<_>>().iter().map(stub).collect::<String>(),
        )
        .unwrap();
        let status = std::process::Command::new("cc")
            .args(["-shared", "-fPIC", "-o"])
            .args([&library, &source])
            .status()
            .unwrap();
        assert!(status.success());
        let nccl = Nccl::open(&library).unwrap();
        assert_eq!(nccl.version(), Some(21805));
        assert_eq!(nccl.file().as_deref(), Some(library.as_path()));
        assert!(nccl.ncclAlltoAll.is_none());
    }
}
