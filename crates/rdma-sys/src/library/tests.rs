use std::ffi::CStr;
use std::path::Path;
use std::ptr;

use super::*;

#[test]
fn a_missing_library_is_an_error_that_names_it() {
    let error = Verbs::open("libibverbs-not-here.so.9").unwrap_err();
    assert_eq!(error.path(), Path::new("libibverbs-not-here.so.9"));
    assert_eq!(
        error.to_string(),
        "cannot open the verbs library libibverbs-not-here.so.9: \
         cannot open shared object file: No such file or directory"
    );
}

#[test]
fn a_file_that_is_no_library_is_an_error_with_the_loaders_words() {
    let error = Verbs::open(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml")).unwrap_err();
    let LoadError::NotOpened { reason, .. } = &error else { panic!("{error:?}") };
    assert!(!reason.is_empty() && reason != "dlopen failed", "{reason}");
}

#[test]
fn a_name_with_a_nul_byte_is_an_error_too() {
    assert!(matches!(Verbs::open("lib\0verbs.so"), Err(LoadError::NotOpened { .. })));
}

#[test]
fn another_library_is_an_error_that_names_the_first_missing_function() {
    let error = Verbs::open("libc.so.6").unwrap_err();
    let expected = LoadError::SymbolMissing {
        what: "the verbs library",
        path: "libc.so.6".into(),
        symbol: Verbs::REQUIRED[0],
    };
    assert_eq!(error, expected);
    assert_eq!(error.to_string(), "cannot use the verbs library libc.so.6: it has no ibv_get_device_list");
}

#[test]
fn an_error_can_be_handed_on_as_any_other() {
    let error: Box<dyn std::error::Error + Send + Sync> = Verbs::open("libc.so.6").unwrap_err().into();
    assert!(error.source().is_none(), "the loader's words are in the message, not behind it");
}

#[test]
fn no_function_is_both_required_and_optional() {
    let all: std::collections::HashSet<_> = Verbs::REQUIRED.iter().chain(Verbs::OPTIONAL).collect();
    assert_eq!(all.len(), Verbs::REQUIRED.len() + Verbs::OPTIONAL.len());
}

#[test]
fn the_environment_names_the_library_and_empty_counts_as_unset() {
    assert_eq!(chosen_library(Some("/opt/libsoftnic.so".into())), "/opt/libsoftnic.so");
    assert_eq!(chosen_library(Some("".into())), DEFAULT_LIBRARY);
    assert_eq!(chosen_library(None), DEFAULT_LIBRARY);
}

#[test]
fn one_table_serves_all_threads() {
    fn shared<T: Send + Sync + 'static>() {}
    shared::<Verbs>();
    let first = Verbs::load().map(ptr::from_ref);
    let second = Verbs::load().map(ptr::from_ref);
    assert_eq!(first, second);
}

#[test]
fn the_installed_library_can_be_called() {
    let verbs = match Verbs::open(DEFAULT_LIBRARY) {
        Ok(verbs) => verbs,
        Err(error @ LoadError::NotOpened { .. }) => {
            eprintln!("SKIP the_installed_library_can_be_called: {error}");
            return;
        }
        Err(error) => panic!("installed, but {error}"),
    };
    assert_eq!(verbs.path(), Path::new(DEFAULT_LIBRARY));
    // SAFETY: the library returns static strings for any value.
    let (success, unknown) = unsafe {
        let text = |status| CStr::from_ptr((verbs.ibv_wc_status_str)(status)).to_string_lossy();
        (text(IBV_WC_SUCCESS), text(9999))
    };
    assert_eq!(success, "success");
    assert_eq!(unknown, "unknown");
}
