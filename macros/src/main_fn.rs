//! `#[fiber::main]`: a function that calls `fiber::init()` first.

use proc_macro2::{Delimiter, Group, TokenStream};
use quote::quote;
use syn::parse::{ParseStream, Parser};
use syn::{Attribute, Error, Result, Signature};

use crate::function::Function;

/// Returns the function that replaces `item`, with the errors if there are any.
pub(crate) fn expand(arguments: TokenStream, item: TokenStream) -> TokenStream {
    let function = match Function::parse(item.clone(), "main") {
        Ok(function) => function,
        Err(error) => {
            let error = error.into_compile_error();
            return quote!(#error #item);
        }
    };
    match check(&arguments, &function.signature) {
        Ok(()) => entry(function),
        Err(error) => {
            // A function of that name keeps the compiler from reporting a missing or wrong `main`
            // too.
            let (visibility, name) = (&function.visibility, &function.signature.ident);
            let error = error.into_compile_error();
            quote!(#error #[allow(dead_code)] #visibility fn #name() {})
        }
    }
}

/// Reports all mistakes in the attribute and the function at once.
fn check(arguments: &TokenStream, signature: &Signature) -> Result<()> {
    let mut errors = Vec::new();
    if !arguments.is_empty() {
        errors.push(Error::new_spanned(
            arguments,
            "`#[fiber::main]` takes no arguments: settings come from the environment, a file or \
             `Pool::builder()`",
        ));
    }
    if signature.ident != "main" {
        errors.push(Error::new_spanned(
            &signature.ident,
            format!(
                "`#[fiber::main]` goes on `main`: on `{}` it would leave `main` without \
                 `fiber::init()`, which comes before all else. Put it on `main` and remove it here",
                signature.ident
            ),
        ));
    }
    if !signature.generics.params.is_empty() {
        errors.push(Error::new_spanned(
            &signature.generics,
            "the entry of a program can't be generic: remove the generic parameters",
        ));
    }
    if !signature.inputs.is_empty() {
        errors.push(Error::new_spanned(
            &signature.inputs,
            "the entry of a program takes no parameters: read `std::env::args()` in the body",
        ));
    }
    match errors.into_iter().reduce(join) {
        Some(error) => Err(error),
        None => Ok(()),
    }
}

fn join(mut first: Error, second: Error) -> Error {
    first.combine(second);
    first
}

/// Returns the function with `fiber::init()` before its body.
///
/// An async body becomes an inner function, not a block. The compiler then checks it against the
/// return type that the user wrote, and reports its errors as for any other function.
fn entry(function: Function) -> TokenStream {
    let Function { attributes, visibility, signature, body } = function;
    let statements = if signature.asyncness.is_some() {
        let name = &signature.ident;
        quote! {
            #signature #body
            ::fiber::init();
            ::fiber::__private::block_on_main(#name())
        }
    } else {
        let (inner, rest) = split_inner_attributes(body.stream());
        quote!(#(#inner)* ::fiber::init(); #rest)
    };
    let mut block = Group::new(Delimiter::Brace, statements);
    block.set_span(body.span());
    let signature = Signature { asyncness: None, ..signature };
    quote!(#(#attributes)* #visibility #signature #block)
}

/// Splits a body into the attributes `#![…]` at its beginning, which must stay there, and the rest.
fn split_inner_attributes(body: TokenStream) -> (Vec<Attribute>, TokenStream) {
    let split = |input: ParseStream<'_>| Ok((input.call(Attribute::parse_inner)?, input.parse()?));
    split.parse2(body.clone()).unwrap_or((Vec::new(), body))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expanded(item: TokenStream) -> String {
        expand(TokenStream::new(), item).to_string()
    }

    #[test]
    fn a_plain_main_begins_with_init() {
        let expected = quote! {
            #[doc = "x"]
            pub fn main() -> Result<(), E> { ::fiber::init(); run()?; Ok(()) }
        };
        let item = quote! {
            #[doc = "x"]
            pub fn main() -> Result<(), E> { run()?; Ok(()) }
        };
        assert_eq!(expanded(item), expected.to_string());
    }

    #[test]
    fn an_async_main_runs_in_block_on_main_after_init() {
        let expected = quote! {
            #[allow(unused)]
            fn main() -> Result<(), E> {
                async fn main() -> Result<(), E> { run().await?; Ok(()) }
                ::fiber::init();
                ::fiber::__private::block_on_main(main())
            }
        };
        let item = quote! {
            #[allow(unused)]
            async fn main() -> Result<(), E> { run().await?; Ok(()) }
        };
        assert_eq!(expanded(item), expected.to_string());
    }

    #[test]
    fn inner_attributes_stay_first() {
        let expected = quote!(
            fn main() {
                #![allow(unused)]
                ::fiber::init();
                let x = 1;
            }
        );
        assert_eq!(
            expanded(quote!(
                fn main() {
                    #![allow(unused)]
                    let x = 1;
                }
            )),
            expected.to_string()
        );
        let expected = quote! {
            fn main() {
                async fn main() { #![allow(unused)] let x = 1; }
                ::fiber::init();
                ::fiber::__private::block_on_main(main())
            }
        };
        assert_eq!(
            expanded(quote!(
                async fn main() {
                    #![allow(unused)]
                    let x = 1;
                }
            )),
            expected.to_string()
        );
    }

    #[test]
    fn another_function_is_refused() {
        let output = expanded(quote!(
            fn start() {}
        ));
        assert!(
            output.contains("goes on `main`: on `start`") && output.contains("Put it on `main`"),
            "{output}"
        );
    }

    #[test]
    fn each_mistake_is_named_and_a_main_remains() {
        let output = expand(
            quote!(flavor = "x"),
            quote!(
                async fn main<T>(argument: T) {}
            ),
        )
        .to_string();
        for part in
            ["takes no arguments", "can't be generic", "takes no parameters", "fn main () { }"]
        {
            assert!(output.contains(part), "{part:?} is not in {output}");
        }
    }

    #[test]
    fn an_item_that_is_no_function_with_a_body_is_refused() {
        for item in [
            quote!(
                struct Main;
            ),
            quote!(
                fn main();
            ),
            quote!(let x = 1;),
        ] {
            let output = expanded(item.clone());
            assert!(output.contains("`#[fiber::main]` goes on a function with a body"), "{output}");
            assert!(output.ends_with(&item.to_string()), "{output}");
        }
    }
}
