//! Compile errors: which programs are rejected, and with which messages.

#[test]
fn misuse_is_a_compile_error_that_names_the_remedy() {
    if std::env::var_os("FIBER_LINK").is_some() {
        return; // The link does not change what compiles.
    }
    let tests = trybuild::TestCases::new();
    // A program that passes makes trybuild build, and not only check: only a build finds captures.
    tests.pass("tests/ui/accepted.rs");
    tests.compile_fail("tests/ui/captures.rs");
    tests.compile_fail("tests/ui/captures_moved.rs");
    tests.compile_fail("tests/ui/pointer.rs");
    tests.compile_fail("tests/ui/error_without_serde.rs");
    tests.compile_fail("tests/ui/references.rs");
    tests.compile_fail("tests/ui/handles.rs");
    tests.compile_fail("tests/ui/parameters.rs");
    tests.compile_fail("tests/ui/meta_unknown.rs");
    tests.compile_fail("tests/ui/main_elsewhere.rs");
    tests.compile_fail("tests/ui/unused_calls.rs");
}
