//! Names of functions for people. The path of a closure does not tell it from others, so its name
//! has the place in the source at which the program passes it to fiber.

use std::collections::HashMap;
use std::panic::Location;
use std::sync::LazyLock;

use parking_lot::RwLock;

use fiber_core::short_file;

use super::{Callable, Entry};

/// The end of a closure's path.
const CLOSURE: &str = "::{{closure}}";

/// The names of closures by the places of their entries. Their number is bounded by the program's
/// code, so they stay.
static NAMES: LazyLock<RwLock<HashMap<usize, &'static str>>> = LazyLock::new(RwLock::default);

impl<C: Callable> Entry<C> {
    /// Returns the name for people: the path, and for a closure the place at which this process
    /// [passed](Entry::passed_at) it first: `shop::main::{closure@src/main.rs:12}`.
    ///
    /// The [`name`](Entry::name) identifies the function, as in journals. This name does not: it
    /// changes with the lines of the source.
    pub fn display_name(&'static self) -> &'static str {
        let path = self.name();
        if !path.ends_with(CLOSURE) {
            return path;
        }
        NAMES.read().get(&self.place()).copied().unwrap_or(path)
    }

    /// Notes the place in the program at which the function is passed to fiber.
    pub fn passed_at(&'static self, place: &Location<'_>) {
        let path = self.name();
        if !path.ends_with(CLOSURE) || NAMES.read().contains_key(&self.place()) {
            return;
        }
        NAMES.write().entry(self.place()).or_insert_with(|| closure_name(path, place).leak());
    }

    fn place(&'static self) -> usize {
        std::ptr::from_ref(self).addr()
    }
}

/// Returns the name of a closure with this path. A closure in others, as in an async `main`, has
/// one place.
fn closure_name(path: &str, place: &Location<'_>) -> String {
    let function = path.trim_end_matches(CLOSURE);
    format!("{function}::{{closure@{}:{}}}", short_file(place.file()), place.line())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::function::{OneArgument, TypedEntry};
    use crate::task_output::{AsValue, Plain, TaskOutput};

    fn double(x: u32) -> u32 {
        2 * x
    }

    #[track_caller]
    fn name_of<F>(function: F) -> &'static str
    where
        F: crate::Function<u32, OneArgument<u32>, Output: TaskOutput<Plain>>,
    {
        TypedEntry::of::<F, _, AsValue<Plain>>(function).entry.display_name()
    }

    #[test]
    fn a_closure_is_named_by_the_file_and_line_where_it_is_passed_first() {
        assert_eq!(name_of(double), "fiber_values::entry::names::tests::double");
        let triple = |x| 3 * x;
        let (first, other, line) = (name_of(triple), name_of(|x| 4 * x), line!());
        let here = "fiber_values::entry::names::tests::\
                    a_closure_is_named_by_the_file_and_line_where_it_is_passed_first";
        let named = format!("{here}::{{closure@core/values/src/entry/names.rs:{line}}}");
        assert_eq!([first, other], [&named; 2]);
        assert_eq!(name_of(triple), named, "a later call keeps the name");
    }

    #[test]
    fn the_path_that_identifies_a_closure_has_no_place() {
        let entry = TypedEntry::<u32, u32>::of::<_, _, AsValue<Plain>>(|x: u32| x + 1).entry;
        assert!(entry.name().ends_with("has_no_place::{{closure}}"), "{}", entry.name());
        assert_ne!(entry.name(), entry.display_name());
    }

    #[test]
    fn closures_in_closures_have_one_place() {
        let place = Location::caller();
        let name = closure_name("shop::main::{{closure}}::{{closure}}", place);
        assert_eq!(name, format!("shop::main::{{closure@{}:{}}}", place.file(), place.line()));
    }
}
