//! `#[fiber::meta(…)]`: registers a function's resource requests for `Meta::of`.

mod request;
#[cfg(test)]
mod tests;

use proc_macro2::{TokenStream, TokenTree};
use quote::{ToTokens, quote};
use syn::parse::Parser;
use syn::{Attribute, Error, GenericParam, Result};

use self::request::Request;
use crate::attributes::carried;
use crate::function::Function;

/// Returns the unchanged `item`, followed by the registration of its requests, or by the errors.
pub(crate) fn expand(arguments: TokenStream, item: TokenStream) -> TokenStream {
    let addition = match registration(arguments, item.clone()) {
        Ok(registration) => registration,
        Err(error) => error.into_compile_error(),
    };
    quote!(#item #addition)
}

fn registration(arguments: TokenStream, item: TokenStream) -> Result<TokenStream> {
    let function = Function::parse(item, "meta")?;
    check(&function)?;
    let request = Request::parse.parse2(arguments)?;

    let attributes = function
        .attributes
        .iter()
        .filter_map(|attribute| carried(attribute.meta.to_token_stream()));
    let name = &function.signature.ident;
    Ok(quote! {
        #(#[#attributes])*
        const _: () = {
            ::fiber::__private::inventory::submit! {
                ::fiber::__private::MetaOf::new(
                    || ::fiber::__private::MetaOf::type_of(#name),
                    #request
                )
            }
        };
    })
}

/// Checks that the function has one type, which an item next to it can name.
fn check(function: &Function) -> Result<()> {
    let signature = &function.signature;
    let instead = "ask for all tasks of a pool instead, with `Pool::builder().meta(…)`";
    let method = "`#[fiber::meta]` can't go on a method or another associated function";
    let generic = "`#[fiber::meta]` can't go on a generic function, which is many functions";

    if let Some(receiver) = signature.receiver() {
        return Err(Error::new_spanned(
            receiver,
            format!("{method}: move it out of the `impl`, or {instead}"),
        ));
    }
    if let Some(token) = find(signature.to_token_stream(), "Self") {
        return Err(Error::new(
            token.span(),
            format!("{method}: move it out of the `impl`, or {instead}"),
        ));
    }
    // Lifetimes are allowed: a `TypeId` does not depend on them.
    let lifetime = |parameter: &&GenericParam| matches!(parameter, GenericParam::Lifetime(_));
    if let Some(parameter) = signature.generics.params.iter().find(|parameter| !lifetime(parameter))
    {
        return Err(Error::new_spanned(
            parameter,
            format!("{generic}: name the types, or {instead}"),
        ));
    }
    if let Some(token) = find(signature.inputs.to_token_stream(), "impl") {
        return Err(Error::new(
            token.span(),
            format!("{generic}: name the type in place of `impl`, or {instead}"),
        ));
    }
    if let Some(second) = function.attributes.iter().find(|attribute| is_meta(attribute)) {
        return Err(Error::new_spanned(
            second,
            "a second `#[fiber::meta]` on one function: put all keys in one",
        ));
    }
    Ok(())
}

fn is_meta(attribute: &Attribute) -> bool {
    let segments = &attribute.path().segments;
    segments.len() == 2 && segments[0].ident == "fiber" && segments[1].ident == "meta"
}

/// Returns the first identifier `wanted` at any depth of `tokens`.
fn find(tokens: TokenStream, wanted: &str) -> Option<TokenTree> {
    tokens.into_iter().find_map(|token| match token {
        TokenTree::Group(group) => find(group.stream(), wanted),
        TokenTree::Ident(ref name) if name == wanted => Some(token),
        _ => None,
    })
}
