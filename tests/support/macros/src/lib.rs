//! Attributes that register tests and the programs that they start, so that adding one is one edit.

use proc_macro::{TokenStream, TokenTree};

/// Registers a function as a test of a suite that has a `main` of its own, which rules out
/// `#[test]`. The suite's `crate::Test` has the function's type.
#[proc_macro_attribute]
pub fn trial(_: TokenStream, function: TokenStream) -> TokenStream {
    let name = name_of(&function);
    registered(function, &format!("crate::Test::new(module_path!(), \"{name}\", {name})"))
}

/// Registers a function as the `main` of the program with this name: `#[scenario("too large")]`.
#[proc_macro_attribute]
pub fn scenario(name: TokenStream, function: TokenStream) -> TokenStream {
    let main = name_of(&function);
    let scenario = "::fiber_test_support::Scenario::new";
    let run = format!("|| ::fiber_test_support::exit_code({main})");
    registered(function, &format!("{scenario}(module_path!(), {name}, {run})"))
}

fn registered(function: TokenStream, value: &str) -> TokenStream {
    let submit = format!("::fiber_test_support::inventory::submit! {{ {value} }}");
    let submit: TokenStream = submit.parse().expect("it is an item");
    function.into_iter().chain(submit).collect()
}

/// Returns the identifier after `fn`.
fn name_of(function: &TokenStream) -> String {
    let is_fn =
        |token: &TokenTree| matches!(token, TokenTree::Ident(name) if name.to_string() == "fn");
    let mut tokens = function.clone().into_iter().skip_while(|token| !is_fn(token));
    tokens.nth(1).expect("the attribute is on a function").to_string()
}

/// Expands to the arguments by which rustc found the crates of the binary that it compiles: a test
/// compiles programs with exactly these.
#[proc_macro]
pub fn crates(_: TokenStream) -> TokenStream {
    let arguments: Vec<String> = std::env::args().collect();
    let of_crates = |pair: &[String]| {
        matches!(pair[0].as_str(), "-L" | "--extern")
            .then(|| format!("{:?}, {:?},", pair[0], pair[1]))
    };
    let listed: String = arguments.windows(2).filter_map(of_crates).collect();
    format!("&[{listed}]").parse().expect("it is an array of strings")
}
