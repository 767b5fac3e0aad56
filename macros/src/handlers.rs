//! `#[fiber::handlers]`: makes the methods of an `impl` handlers of messages.

use proc_macro2::{Span, TokenStream};
use quote::{ToTokens, quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{Error, FnArg, ImplItem, ImplItemFn, ItemImpl, Result, ReturnType, Type};

use crate::attributes::carried;

/// Returns the unchanged `item`, followed by an `impl Handler` for each method, or by the error.
pub(crate) fn expand(arguments: TokenStream, item: TokenStream) -> TokenStream {
    let addition = handlers(&arguments, item.clone()).unwrap_or_else(Error::into_compile_error);
    quote!(#item #addition)
}

fn handlers(arguments: &TokenStream, item: TokenStream) -> Result<TokenStream> {
    if !arguments.is_empty() {
        return Err(Error::new_spanned(arguments, "`#[fiber::handlers]` takes no arguments"));
    }
    let place = "`#[fiber::handlers]` goes on an `impl` of an actor's type, without a trait";
    let block: ItemImpl = syn::parse2(item).map_err(|error| Error::new(error.span(), place))?;
    if let Some((path, _)) = &block.trait_ {
        return Err(Error::new_spanned(path, place));
    }
    let methods = block.items.iter().filter_map(|item| match item {
        ImplItem::Fn(method) => Some(method),
        _ => None,
    });
    methods.map(|method| handler(&block, method)).collect()
}

/// Returns the `impl Handler` that calls a method.
fn handler(block: &ItemImpl, method: &ImplItemFn) -> Result<TokenStream> {
    let signature = &method.sig;
    let name = &signature.ident;
    if !signature.generics.params.is_empty() {
        return Err(Error::new_spanned(
            &signature.generics,
            "a handler can't be generic: each message has one",
        ));
    }
    let (message, has_context) = parameters(method)?;
    // The compiler shows the method's result where it is not that of the message.
    let place = match &signature.output {
        ReturnType::Default => name.span(),
        ReturnType::Type(_, result) => result.span(),
    };
    let span = Span::call_site().located_at(place);
    let (result, answer) = if signature.asyncness.is_some() {
        (
            quote!(ActorResponse<Self, <#message as ::fiber::actix::Message>::Result>),
            quote_spanned! {span=>
                ::fiber::__private::handle(self, context, |this| Self::#name(this, message))
            },
        )
    } else {
        let context = has_context.then(|| quote!(, context));
        (
            quote!(MessageResult<#message>),
            quote_spanned! {span=>
                ::fiber::actix::MessageResult(Self::#name(self, message #context))
            },
        )
    };
    let attributes =
        method.attrs.iter().filter_map(|attribute| carried(attribute.meta.to_token_stream()));
    let actor = &block.self_ty;
    let (parameters, _, bounds) = block.generics.split_for_impl();
    Ok(quote! {
        #(#[#attributes])*
        impl #parameters ::fiber::actix::Handler<#message> for #actor #bounds {
            type Result = ::fiber::actix::#result;

            #[allow(unused_variables)]
            fn handle(
                &mut self,
                message: #message,
                context: &mut <Self as ::fiber::actix::Actor>::Context,
            ) -> Self::Result {
                #answer
            }
        }
    })
}

/// Returns the type of a handler's message, and whether the handler takes the actor's context.
fn parameters(method: &ImplItemFn) -> Result<(&Type, bool)> {
    let signature = &method.sig;
    let inputs: Vec<&FnArg> = signature.inputs.iter().collect();
    match (signature.asyncness.is_some(), inputs.as_slice()) {
        (false, [FnArg::Receiver(_), FnArg::Typed(message)]) => Ok((&message.ty, false)),
        (false, [FnArg::Receiver(_), FnArg::Typed(message), _]) => Ok((&message.ty, true)),
        (true, [FnArg::Typed(_), FnArg::Typed(message)]) => Ok((&message.ty, false)),
        (true, [FnArg::Receiver(receiver), ..]) => Err(Error::new_spanned(
            receiver,
            "an async handler can't borrow its actor, which handles other messages while it \
             waits: take `this: Access<Self>`, and reach the actor by `this.with(|actor| …).await`",
        )),
        _ => Err(Error::new_spanned(
            &signature.inputs,
            "a handler takes `&mut self, message: M` and, if it needs it, `context: &mut \
             Context<Self>`; an async one takes `this: Access<Self>, message: M`. Other functions \
             go into an `impl` without the attribute",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addition(item: TokenStream) -> String {
        let output = expand(TokenStream::new(), item.clone()).to_string();
        let unchanged = item.to_string();
        output.strip_prefix(&unchanged).expect("the item is unchanged").trim().to_owned()
    }

    #[track_caller]
    fn assert_refused(item: TokenStream, part: &str) {
        let output = addition(item);
        assert!(output.contains("compile_error") && output.contains(part), "{output}");
        assert!(!output.contains("Handler"), "{output}");
    }

    #[test]
    fn a_method_becomes_the_handler_of_its_message() {
        let item = quote! {
            impl<T: Ord> Store<T> {
                #[cfg(unix)]
                fn put(&mut self, Put(item): Put<T>, context: &mut Context<Self>) -> u64 { 7 }
            }
        };
        let expected = quote! {
            #[cfg(unix)]
            impl<T: Ord> ::fiber::actix::Handler<Put<T> > for Store<T> {
                type Result = ::fiber::actix::MessageResult<Put<T> >;

                #[allow(unused_variables)]
                fn handle(
                    &mut self,
                    message: Put<T>,
                    context: &mut <Self as ::fiber::actix::Actor>::Context,
                ) -> Self::Result {
                    ::fiber::actix::MessageResult(Self::put(self, message, context))
                }
            }
        };
        assert_eq!(addition(item), expected.to_string());
    }

    #[test]
    fn an_async_method_gets_access_to_the_actor() {
        let output = addition(quote! {
            impl Store {
                async fn put(this: Access<Self>, Put(item): Put) -> u64 { 7 }
                const SIZE: usize = 7;
            }
        });
        let call =
            quote!(::fiber::__private::handle(self, context, |this| Self::put(this, message)));
        assert!(output.contains(&call.to_string()), "{output}");
    }

    #[test]
    fn what_can_be_no_handler_is_refused() {
        let refused = [
            (
                quote!(
                    fn put() {}
                ),
                "without a trait",
            ),
            (quote!(impl Clone for Store { fn put(&mut self, put: Put) {} }), "without a trait"),
            (quote!(impl Store { fn put<T>(&mut self, put: T) {} }), "can't be generic"),
            (quote!(impl Store { async fn put(&mut self, put: Put) {} }), "`this: Access<Self>`"),
            (quote!(impl Store { fn len(&self) -> usize { 7 } }), "without the attribute"),
            (quote!(impl Store { fn new(size: usize) -> Store {} }), "without the attribute"),
        ];
        for (item, part) in refused {
            assert_refused(item, part);
        }
        let item = quote!(impl Store {});
        let output = expand(quote!(all), item).to_string();
        assert!(output.contains("takes no arguments"), "{output}");
    }
}
