//! Attributes that an item takes over from the one that it is made for.

use proc_macro2::{Delimiter, TokenStream, TokenTree};
use quote::quote;

/// Returns the attribute of an addition that follows from an attribute of the function that the
/// addition names, both without `#[…]`: the same `cfg`, and no warning that the function is
/// deprecated.
pub(crate) fn carried(attribute: TokenStream) -> Option<TokenStream> {
    let mut tokens = attribute.clone().into_iter();
    let TokenTree::Ident(name) = tokens.next()? else { return None };
    match (name.to_string().as_str(), tokens.next()) {
        ("cfg", Some(_)) => Some(attribute),
        ("deprecated", _) => Some(quote!(allow(deprecated))),
        ("cfg_attr", Some(TokenTree::Group(group)))
            if group.delimiter() == Delimiter::Parenthesis =>
        {
            let mut parts = split_at_commas(group.stream()).into_iter();
            let condition = parts.next()?;
            let kept: Vec<TokenStream> = parts.filter_map(carried).collect();
            (!kept.is_empty()).then(|| quote!(cfg_attr(#condition, #(#kept),*)))
        }
        _ => None,
    }
}

fn split_at_commas(tokens: TokenStream) -> Vec<TokenStream> {
    let mut parts = vec![TokenStream::new()];
    for token in tokens {
        match (&token, parts.last_mut()) {
            (TokenTree::Punct(punct), _) if punct.as_char() == ',' => {
                parts.push(TokenStream::new())
            }
            (_, Some(part)) => part.extend([token]),
            (_, None) => parts.push(token.into()),
        }
    }
    parts
}
