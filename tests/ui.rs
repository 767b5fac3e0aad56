//! What is refused when it is compiled, and in which words.

#[test]
fn misuse_is_refused_with_words_that_help() {
    let tests = trybuild::TestCases::new();
    // A program that passes makes trybuild build, and not only check: what a closure captures is
    // found when it builds.
    tests.pass("tests/ui/accepted.rs");
    tests.compile_fail("tests/ui/captures.rs");
    tests.compile_fail("tests/ui/pointer.rs");
    tests.compile_fail("tests/ui/error_without_serde.rs");
    tests.compile_fail("tests/ui/references.rs");
    tests.compile_fail("tests/ui/handles.rs");
    tests.compile_fail("tests/ui/parameters.rs");
    tests.compile_fail("tests/ui/meta_unknown.rs");
    tests.compile_fail("tests/ui/main_elsewhere.rs");
}
