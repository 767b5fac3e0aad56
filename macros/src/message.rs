//! `#[fiber::message(…)]`: makes a struct or an enum a message of actors.

use proc_macro2::TokenStream;
use quote::quote;
use syn::punctuated::Punctuated;
use syn::{Attribute, Data, DeriveInput, Error, Path, Result, Token, Type, parse_quote};

/// Returns `item` with the implementations that a message needs, or with the error.
pub(crate) fn expand(arguments: TokenStream, item: TokenStream) -> TokenStream {
    let parsed = answer(arguments).and_then(|answer| Ok((answer, message(item.clone())?)));
    let (answer, message) = match parsed {
        Ok(parsed) => parsed,
        Err(error) => {
            let error = error.into_compile_error();
            return quote!(#item #error);
        }
    };
    let name = &message.ident;
    let (parameters, arguments, bounds) = message.generics.split_for_impl();
    quote! {
        #[derive(::fiber::__private::serde::Serialize, ::fiber::__private::serde::Deserialize)]
        #[serde(crate = "::fiber::__private::serde")]
        #message

        impl #parameters ::fiber::actix::Message for #name #arguments #bounds {
            type Result = #answer;
        }
    }
}

fn answer(arguments: TokenStream) -> Result<Type> {
    if arguments.is_empty() {
        return Ok(parse_quote!(()));
    }
    syn::parse2(arguments).map_err(|error| {
        Error::new(
            error.span(),
            "`#[fiber::message]` takes the type of the answer, as in `#[fiber::message(u64)]`, or \
             nothing",
        )
    })
}

fn message(item: TokenStream) -> Result<DeriveInput> {
    let elsewhere = "`#[fiber::message]` goes on a struct or an enum";
    let message: DeriveInput =
        syn::parse2(item).map_err(|error| Error::new(error.span(), elsewhere))?;
    if let Data::Union(data) = &message.data {
        return Err(Error::new_spanned(data.union_token, elsewhere));
    }
    if let Some(lifetime) = message.generics.lifetimes().next() {
        return Err(Error::new_spanned(
            lifetime,
            "a message owns its data, because it can go to another process: use `String` in place \
             of `&str`, and `Vec<T>` in place of `&[T]`",
        ));
    }
    if let Some(path) = message.attrs.iter().find_map(derive_of_serde) {
        return Err(Error::new_spanned(
            path,
            "`#[fiber::message]` derives `Serialize` and `Deserialize` itself: remove them here",
        ));
    }
    Ok(message)
}

fn derive_of_serde(attribute: &Attribute) -> Option<Path> {
    if !attribute.path().is_ident("derive") {
        return None;
    }
    let derives = Punctuated::<Path, Token![,]>::parse_terminated;
    let paths = attribute.parse_args_with(derives).ok()?;
    paths.into_iter().find(|path| {
        path.segments.last().is_some_and(|name| {
            let name = &name.ident;
            name == "Serialize" || name == "Deserialize"
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn assert_refused(arguments: TokenStream, item: TokenStream, part: &str) {
        let output = expand(arguments, item.clone()).to_string();
        assert!(output.starts_with(&item.to_string()), "the item is changed: {output}");
        assert!(output.contains("compile_error") && output.contains(part), "{output}");
        assert!(!output.contains("type Result"), "{output}");
    }

    #[test]
    fn a_type_gets_the_derives_of_serde_and_its_answer() {
        let item = quote! {
            /// Documentation.
            #[derive(Clone)]
            pub(crate) struct Put<T: Ord>(#[serde(default)] Vec<T>) where T: Copy;
        };
        let expected = quote! {
            #[derive(::fiber::__private::serde::Serialize, ::fiber::__private::serde::Deserialize)]
            #[serde(crate = "::fiber::__private::serde")]
            #item

            impl<T: Ord> ::fiber::actix::Message for Put<T> where T: Copy {
                type Result = Option<T>;
            }
        };
        assert_eq!(expand(quote!(Option<T>), item).to_string(), expected.to_string());
    }

    #[test]
    fn without_an_argument_the_answer_is_empty() {
        let item = quote!(
            enum Ask {
                One,
                Two,
            }
        );
        let output = expand(quote!(), item).to_string();
        let answer = quote!(
            type Result = ();
        )
        .to_string();
        assert!(output.contains(&answer), "{output}");
    }

    #[test]
    fn what_is_no_type_is_refused_as_an_answer() {
        for arguments in [quote!(result = "u64"), quote!("u64"), quote!(u64, String)] {
            assert_refused(
                arguments,
                quote!(
                    struct Ask;
                ),
                "as in `#[fiber::message(u64)]`",
            );
        }
    }

    #[test]
    fn other_items_and_types_that_borrow_are_refused() {
        for item in [
            quote!(
                fn ask() {}
            ),
            quote!(union Ask { a: u32 }),
            quote!(impl Ask {}),
        ] {
            assert_refused(quote!(u64), item, "goes on a struct or an enum");
        }
        assert_refused(
            quote!(),
            quote!(
                struct Ask<'a>(&'a str);
            ),
            "owns its data",
        );
    }

    #[test]
    fn a_second_derive_of_serde_is_refused() {
        for derives in [quote!(Clone, Serialize), quote!(serde::Deserialize)] {
            let item = quote!(
                #[derive(#derives)]
                struct Ask;
            );
            assert_refused(quote!(), item, "remove them here");
        }
    }
}
