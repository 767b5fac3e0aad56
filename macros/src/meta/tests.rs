use super::*;

/// Returns the item that the attribute adds to a function `task`.
fn addition(arguments: TokenStream, item: TokenStream) -> String {
    let output = expand(arguments, item.clone()).to_string();
    let unchanged = item.to_string();
    output
        .strip_prefix(&unchanged)
        .unwrap_or_else(|| panic!("the function is changed: {output}"))
        .trim()
        .to_owned()
}

fn registered(attributes: TokenStream, meta: TokenStream) -> String {
    let expected = quote! {
        #attributes
        const _: () = {
            ::fiber::__private::inventory::submit! {
                ::fiber::__private::MetaOf::new(
                    || ::fiber::__private::MetaOf::type_of(task),
                    ::fiber::__private::Meta::new() #meta
                )
            }
        };
    };
    expected.to_string()
}

#[track_caller]
fn assert_refused(arguments: TokenStream, item: TokenStream, parts: &[&str]) {
    let output = addition(arguments, item);
    assert!(output.contains("compile_error"), "no error in {output}");
    assert!(!output.contains("submit"), "registered although wrong: {output}");
    for part in parts {
        assert!(output.contains(part), "{part:?} is not in {output}");
    }
}

#[test]
fn the_function_stays_and_its_requests_are_registered() {
    let item = quote! {
        /// Documentation.
        #[inline]
        pub(crate) async fn task(text: &str) -> usize { text.len() }
    };
    let arguments = quote!(cpu = 1, memory = "512MiB", gpu = 1);
    let meta = quote!(.cpu(1f64).memory(536870912u64).gpu(1u32));
    assert_eq!(addition(arguments, item), registered(quote!(), meta));
}

#[test]
fn each_key_may_stand_alone_and_in_any_order() {
    for (arguments, meta) in [
        (quote!(cpu = 0.5), quote!(.cpu(0.5f64))),
        (quote!(cpu = 2,), quote!(.cpu(2f64))),
        (quote!(memory = 65_536), quote!(.memory(65536u64))),
        (quote!(gpu = 0), quote!(.gpu(0u32))),
        (quote!(gpu = 2, cpu = 1.5), quote!(.cpu(1.5f64).gpu(2u32))),
    ] {
        assert_eq!(
            addition(
                arguments,
                quote!(
                    fn task() {}
                )
            ),
            registered(quote!(), meta)
        );
    }
}

#[test]
fn a_literal_from_a_macro_is_a_literal() {
    let one = proc_macro2::Group::new(proc_macro2::Delimiter::None, quote!(1));
    assert_eq!(
        addition(
            quote!(cpu = #one),
            quote!(
                fn task() {}
            )
        ),
        registered(quote!(), quote!(.cpu(1f64)))
    );
}

#[test]
fn conditions_of_the_function_hold_for_the_registration() {
    let item = quote! {
        #[cfg(unix)]
        #[inline]
        #[cfg_attr(feature = "a", inline, cfg(feature = "b"), cfg_attr(c, cfg(d), cold))]
        #[cfg_attr(feature = "e", cold)]
        #[deprecated(note = "old")]
        fn task() {}
    };
    let attributes = quote! {
        #[cfg(unix)]
        #[cfg_attr(feature = "a", cfg(feature = "b"), cfg_attr(c, cfg(d)))]
        #[allow(deprecated)]
    };
    assert_eq!(addition(quote!(gpu = 1), item), registered(attributes, quote!(.gpu(1u32))));
}

#[test]
fn lifetimes_are_no_generics() {
    let item = quote!(
        fn task<'a>(text: &'a str) -> &'a str {
            text
        }
    );
    assert_eq!(addition(quote!(gpu = 1), item), registered(quote!(), quote!(.gpu(1u32))));
}

#[test]
fn functions_without_one_type_are_refused_with_the_way_out() {
    for (item, word) in [
        (
            quote!(
                fn task(&self) {}
            ),
            "method",
        ),
        (
            quote!(
                fn task(self: Box<Self>) {}
            ),
            "method",
        ),
        (
            quote!(
                fn task() -> Option<Self> {
                    None
                }
            ),
            "method",
        ),
        (
            quote!(
                fn task<T>(value: T) {}
            ),
            "generic",
        ),
        (
            quote!(
                fn task<'a, const N: usize>(values: &'a [u8; N]) {}
            ),
            "generic",
        ),
        (
            quote!(
                fn task(values: Vec<impl Clone>) {}
            ),
            "generic",
        ),
    ] {
        assert_refused(quote!(cpu = 1), item, &[word, "`Pool::builder().meta(…)`"]);
    }
}

#[test]
fn what_is_no_function_with_a_body_is_refused() {
    for item in [
        quote!(
            struct Task;
        ),
        quote!(
            fn task();
        ),
    ] {
        assert_refused(quote!(cpu = 1), item, &["`#[fiber::meta]` goes on a function with a body"]);
    }
}

#[test]
fn a_second_attribute_is_refused() {
    for second in [quote!(fiber::meta(gpu = 1)), quote!(::fiber::meta(gpu = 1))] {
        assert_refused(
            quote!(cpu = 1),
            quote!(#[#second] fn task() {}),
            &["second `#[fiber::meta]`"],
        );
    }
}

#[test]
fn a_wrong_key_is_named_with_the_right_ones() {
    for (arguments, part) in [
        (quote!(), "without a request"),
        (quote!(mem = 1), "unknown key `mem`"),
        (quote!(type = 1), "unknown key `type`"),
        (quote!("1GiB"), "expected a key"),
    ] {
        assert_refused(
            arguments,
            quote!(
                fn task() {}
            ),
            &[part, "the keys are `cpu`, `memory` and `gpu`"],
        );
    }
    assert_refused(
        quote!(cpu = 1, cpu = 2),
        quote!(
            fn task() {}
        ),
        &["`cpu` is there twice"],
    );
}

#[test]
fn a_wrong_value_is_named_with_its_key_and_a_right_one() {
    for (arguments, found, right) in [
        (quote!(cpu), "`cpu` is not followed by", "`cpu = 2`"),
        (quote!(cpu(2)), "`cpu` is not followed by", "`cpu = 2`"),
        (quote!(cpu =), "`cpu` has no value", "`cpu = 2`"),
        (quote!(gpu =, cpu = 1), "`gpu` has no value", "`gpu = 1`"),
        (quote!(cpu = 0), "`cpu` is `0`", "`cpu = 2`"),
        (quote!(cpu = 0.0), "`cpu` is `0.0`", "greater than 0"),
        (quote!(cpu = -1), "`cpu` is `-1`", "greater than 0"),
        (quote!(cpu = 1e999), "`cpu` is `1e999`", "`cpu = 2`"),
        (quote!(cpu = 1u8), "`cpu` is `1u8`", "`cpu = 2`"),
        (quote!(cpu = CORES), "`cpu` is `CORES`", "`cpu = 2`"),
        (quote!(gpu = 1.5), "`gpu` is `1.5`", "`gpu = 1`"),
        (quote!(gpu = -1), "`gpu` is `-1`", "`gpu = 1`"),
        (quote!(gpu = 4294967296), "`gpu` is `4294967296`", "4294967295"),
        (quote!(memory = 0), "`memory` is `0`", "greater than 0"),
        (quote!(memory = 1.5), "`memory` is `1.5`", "whole number"),
        (quote!(memory = -1), "`memory` is `-1`", "512MiB"),
        (quote!(memory = 18446744073709551616), "64 bits", "512MiB"),
        (quote!(memory = "0MiB"), "0MiB", "greater than 0"),
        (quote!(memory = "12Q"), "12Q", "unknown unit"),
    ] {
        assert_refused(
            arguments,
            quote!(
                fn task() {}
            ),
            &[found, right],
        );
    }
}

#[test]
fn all_wrong_values_are_reported_at_once() {
    let arguments = quote!(cpu = 0, memory = "1", gpu = "x", disk = 1);
    assert_refused(
        arguments,
        quote!(
            fn task() {}
        ),
        &["`cpu` is", "`memory` is", "`gpu` is", "`disk`"],
    );
}

#[test]
fn keys_without_a_comma_between_are_refused() {
    assert_refused(
        quote!(cpu = 1 gpu = 1),
        quote!(
            fn task() {}
        ),
        &["expected a comma"],
    );
}
