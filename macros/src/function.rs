//! The parsed function under an attribute.

use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};
use syn::parse::{Parse, ParseStream, Result};
use syn::{Attribute, Signature, Visibility};

/// A function with an unparsed body: the compiler reports mistakes in a body better than a macro.
pub(crate) struct Function {
    pub(crate) attributes: Vec<Attribute>,
    pub(crate) visibility: Visibility,
    pub(crate) signature: Signature,
    pub(crate) body: Group,
}

impl Function {
    /// Parses the item under the attribute `#[fiber::NAME]`.
    pub(crate) fn parse(item: TokenStream, name: &str) -> Result<Function> {
        syn::parse2(item).map_err(|error| {
            let mut explained = syn::Error::new(
                error.span(),
                format!("`#[fiber::{name}]` goes on a function with a body"),
            );
            explained.combine(error);
            explained
        })
    }
}

impl Parse for Function {
    fn parse(input: ParseStream<'_>) -> Result<Function> {
        let attributes = input.call(Attribute::parse_outer)?;
        let visibility = input.parse()?;
        let signature = input.parse()?;
        let body = match input.parse()? {
            TokenTree::Group(group) if group.delimiter() == Delimiter::Brace => group,
            other => {
                return Err(syn::Error::new(
                    other.span(),
                    "expected the function's body in braces",
                ));
            }
        };
        Ok(Function { attributes, visibility, signature, body })
    }
}
