//! The arguments of `#[fiber::meta(…)]`.

use proc_macro2::{Ident, Literal, Span, TokenStream};
use quote::{ToTokens, quote};
use syn::ext::IdentExt;
use syn::parse::ParseStream;
use syn::{Error, Expr, ExprLit, ExprUnary, Lit, Result, Token, UnOp};

use crate::size;

const KEYS: &str = "the keys are `cpu`, `memory` and `gpu`, as in `#[fiber::meta(cpu = 1, memory = \
                    \"512MiB\", gpu = 1)]`";
const CPU: &str = "write a number of cores greater than 0, such as `cpu = 2` or `cpu = 0.5`";
const MEMORY: &str = "write a whole number greater than 0 with a unit (B, kB, KiB, MB, MiB, GB, \
                      GiB, TB or TiB), such as `memory = \"512MiB\"`, or a number of bytes, such \
                      as `memory = 65536`";
const GPU: &str = "write a whole number from 0 to 4294967295, such as `gpu = 1`";

/// The requested resources. At least one field is set.
#[derive(Default)]
pub(super) struct Request {
    cpu: Option<f64>,
    memory: Option<u64>,
    gpu: Option<u32>,
}

impl Request {
    /// Parses all arguments, and reports all mistakes at once.
    pub(super) fn parse(input: ParseStream<'_>) -> Result<Request> {
        if input.is_empty() {
            return Err(Error::new(
                Span::call_site(),
                format!("`#[fiber::meta]` without a request: {KEYS}"),
            ));
        }
        let mut request = Request::default();
        let mut seen: Vec<Ident> = Vec::new();
        let mut errors: Option<Error> = None;
        while !input.is_empty() {
            let (key, value) = argument(input)?;
            let outcome = if seen.contains(&key) {
                Err(Error::new(key.span(), format!("`{key}` is there twice: keep one")))
            } else {
                request.set(&key, &value)
            };
            seen.push(key);
            match (outcome, &mut errors) {
                (Ok(()), _) => {}
                (Err(error), Some(errors)) => errors.combine(error),
                (Err(error), None) => errors = Some(error),
            }
        }
        errors.map_or(Ok(request), Err)
    }

    fn set(&mut self, key: &Ident, value: &Expr) -> Result<()> {
        match key.to_string().as_str() {
            "cpu" => self.cpu = Some(cpu(value)?),
            "memory" => self.memory = Some(memory(value)?),
            "gpu" => self.gpu = Some(gpu(value)?),
            _ => return Err(Error::new(key.span(), format!("unknown key `{key}`: {KEYS}"))),
        }
        Ok(())
    }
}

/// Writes an expression that makes the `Meta`.
impl ToTokens for Request {
    fn to_tokens(&self, tokens: &mut TokenStream) {
        let cpu = self.cpu.map(Literal::f64_suffixed).into_iter();
        let memory = self.memory.map(Literal::u64_suffixed).into_iter();
        let gpu = self.gpu.map(Literal::u32_suffixed).into_iter();
        tokens.extend(quote! {
            ::fiber::__private::Meta::new() #(.cpu(#cpu))* #(.memory(#memory))* #(.gpu(#gpu))*
        });
    }
}

/// Parses one `key = value` and the comma after it.
fn argument(input: ParseStream<'_>) -> Result<(Ident, Expr)> {
    let key = input
        .call(Ident::parse_any)
        .map_err(|error| Error::new(error.span(), format!("expected a key: {KEYS}")))?;
    if !input.peek(Token![=]) {
        return Err(Error::new(
            key.span(),
            format!("`{key}` is not followed by `= value`: {}", hint(&key)),
        ));
    }
    input.parse::<Token![=]>()?;
    if input.is_empty() || input.peek(Token![,]) {
        return Err(Error::new(key.span(), format!("`{key}` has no value: {}", hint(&key))));
    }
    let value = input.parse()?;
    if !input.is_empty() {
        input
            .parse::<Token![,]>()
            .map_err(|error| Error::new(error.span(), "expected a comma between two keys"))?;
    }
    Ok((key, value))
}

/// Returns the correct form for the key.
fn hint(key: &Ident) -> &'static str {
    match key.to_string().as_str() {
        "cpu" => CPU,
        "memory" => MEMORY,
        "gpu" => GPU,
        _ => KEYS,
    }
}

fn cpu(value: &Expr) -> Result<f64> {
    let cores = match literal(value) {
        Some(Lit::Int(number)) if number.suffix().is_empty() => number.base10_parse().ok(),
        Some(Lit::Float(number)) if number.suffix().is_empty() => number.base10_parse().ok(),
        _ => None,
    };
    cores
        .filter(|cores: &f64| cores.is_finite() && *cores > 0.0)
        .ok_or_else(|| wrong(value, "cpu", "is no number of cores", CPU))
}

fn memory(value: &Expr) -> Result<u64> {
    let bytes = match literal(value) {
        Some(Lit::Int(number)) if number.suffix().is_empty() => {
            number.base10_parse().map_err(|_| "is more than 64 bits can count")
        }
        Some(Lit::Str(text)) => size::bytes(&text.value()),
        _ => Err("is no text and no whole number"),
    };
    match bytes {
        Ok(0) => Err(wrong(value, "memory", "is nothing", MEMORY)),
        Ok(bytes) => Ok(bytes),
        Err(problem) => Err(wrong(value, "memory", problem, MEMORY)),
    }
}

fn gpu(value: &Expr) -> Result<u32> {
    let count = match literal(value) {
        Some(Lit::Int(number)) if number.suffix().is_empty() => number.base10_parse().ok(),
        _ => None,
    };
    count.ok_or_else(|| wrong(value, "gpu", "is no number of processors", GPU))
}

/// Returns the literal in `value`, also if a `macro_rules!` has wrapped it in a group.
fn literal(value: &Expr) -> Option<&Lit> {
    match value {
        Expr::Group(group) => literal(&group.expr),
        Expr::Lit(ExprLit { lit, .. }) => Some(lit),
        _ => None,
    }
}

fn wrong(value: &Expr, key: &str, problem: &str, right: &str) -> Error {
    Error::new_spanned(value, format!("`{key}` is `{}`, which {problem}: {right}", source(value)))
}

/// Returns the value's source text, as far as its tokens show it.
fn source(value: &Expr) -> String {
    match value {
        Expr::Group(group) => source(&group.expr),
        Expr::Unary(ExprUnary { op: UnOp::Neg(_), expr, .. }) => format!("-{}", source(expr)),
        other => other.to_token_stream().to_string(),
    }
}
