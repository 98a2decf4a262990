//! Helpers of all macros: parsing the function that they annotate.

use proc_macro2::TokenStream;
use quote::quote;
use syn::parse::ParseStream;
use syn::{
    Attribute, Error, Expr, ExprLit, FnArg, Ident, Lit, LitStr, Meta, PatType, Result, ReturnType, Signature, Token,
    Type,
};

/// Returns the text of the doc comments without the leading space of each line.
pub fn comment(attributes: &[Attribute]) -> String {
    let lines = attributes.iter().filter_map(|attribute| match &attribute.meta {
        Meta::NameValue(pair) if pair.path.is_ident("doc") => match &pair.value {
            Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => Some(text.value()),
            _ => None,
        },
        _ => None,
    });
    let lines: Vec<_> = lines.map(|line| line.strip_prefix(' ').unwrap_or(&line).to_owned()).collect();
    lines.join("\n").trim().to_owned()
}

/// Removes and returns the doc comments, which go to the generated function.
pub fn take_comments(attributes: &mut Vec<Attribute>) -> Vec<Attribute> {
    let (comments, others) = attributes.drain(..).partition(|attribute| attribute.path().is_ident("doc"));
    *attributes = others;
    comments
}

/// Checks the requirements of all annotated functions.
pub fn check(signature: &Signature, kind: &str) -> Result<()> {
    if signature.asyncness.is_none() {
        return Err(Error::new_spanned(signature.fn_token, format!("a {kind} is an `async fn`")));
    }
    if !signature.generics.params.is_empty() {
        return Err(Error::new_spanned(&signature.generics, format!("a {kind} cannot be generic")));
    }
    Ok(())
}

/// How a parameter is passed.
pub enum PassingMode {
    Value,
    Shared,
    Mutable,
}

impl PassingMode {
    /// Returns the expression that passes `value` this way.
    pub fn pass(&self, value: &TokenStream) -> TokenStream {
        match self {
            Self::Value => quote!(#value),
            Self::Shared => quote!(&#value),
            Self::Mutable => quote!(&mut #value),
        }
    }
}

/// A parameter: its type without the reference, and how it is passed.
pub struct Parameter<'a> {
    pub ty: &'a Type,
    pub passing: PassingMode,
}

impl Parameter<'_> {
    /// Returns true if the type's name is `name`.
    pub fn has_type(&self, name: &str) -> bool {
        last_name(self.ty).is_some_and(|last| last == name)
    }
}

/// Returns the parameters of a function in order.
pub fn parameters<'a>(signature: &'a Signature) -> Result<Vec<Parameter<'a>>> {
    let parameter = |input: &'a FnArg| match input {
        FnArg::Receiver(receiver) => Err(Error::new_spanned(receiver, "this must be a free function, without `self`")),
        FnArg::Typed(PatType { ty, .. }) => Ok(match ty.as_ref() {
            Type::Reference(reference) => Parameter {
                ty: &reference.elem,
                passing: if reference.mutability.is_some() { PassingMode::Mutable } else { PassingMode::Shared },
            },
            ty => Parameter { ty, passing: PassingMode::Value },
        }),
    };
    signature.inputs.iter().map(parameter).collect()
}

/// Returns true if the name of the function's return type is `Result`.
pub fn returns_result(signature: &Signature) -> bool {
    match &signature.output {
        ReturnType::Default => false,
        ReturnType::Type(_, ty) => last_name(ty).is_some_and(|name| name == "Result"),
    }
}

/// Returns true if a function returns `()` or never.
pub fn returns_nothing(signature: &Signature) -> bool {
    match &signature.output {
        ReturnType::Default => true,
        ReturnType::Type(_, ty) => match ty.as_ref() {
            Type::Tuple(tuple) => tuple.elems.is_empty(),
            ty => matches!(ty, Type::Never(_)),
        },
    }
}

/// Returns the return type of a function if it cannot be a `Result`, not even an alias of one.
pub fn other_than_result(signature: &Signature) -> Option<&Type> {
    let ReturnType::Type(_, ty) = &signature.output else { return None };
    let is_other = match ty.as_ref() {
        Type::Path(_) => last_name(ty).is_some_and(|name| is_bare_answer(&name)),
        ty => matches!(ty, Type::Array(_) | Type::ImplTrait(_) | Type::Reference(_) | Type::Tuple(_)),
    };
    is_other.then_some(ty.as_ref())
}

/// Refuses a function whose return type is evidently no `Result`. `returns` is for the message.
pub fn check_result(signature: &Signature, kind: &str, returns: &str) -> Result<()> {
    let message = || format!("this {kind} returns `{returns}`");
    match other_than_result(signature) {
        Some(other) => Err(Error::new_spanned(other, message())),
        None if returns_nothing(signature) => Err(Error::new_spanned(&signature.ident, message())),
        None => Ok(()),
    }
}

/// Returns true for the names of types that a function can return in a `Result`.
fn is_bare_answer(name: &str) -> bool {
    matches!(name, "bool" | "CodeOutput" | "Content" | "Event" | "LlmResponse" | "Option" | "String" | "Value" | "Vec")
}

/// Returns the name of a type without its path.
pub fn last_name(ty: &Type) -> Option<String> {
    match ty {
        Type::Path(path) => path.path.segments.last().map(|segment| segment.ident.to_string()),
        _ => None,
    }
}

/// The keys of the options that were parsed.
#[derive(Default)]
pub struct OptionKeys(Vec<Ident>);

impl OptionKeys {
    /// Parses a key.
    ///
    /// # Errors
    /// If there was the same key before.
    pub fn parse(&mut self, input: ParseStream<'_>) -> Result<Ident> {
        let key: Ident = input.parse()?;
        if self.0.contains(&key) {
            return Err(Error::new_spanned(&key, format!("`{key}` is set twice; remove one of them")));
        }
        self.0.push(key.clone());
        Ok(key)
    }

    pub fn first(&self) -> Option<&Ident> {
        self.0.first()
    }
}

/// The only option of most macros: `name = "…"`.
pub struct NameOption(Option<LitStr>);

impl NameOption {
    /// Parses the option. `kind` is for messages.
    pub fn parse(kind: &str, input: ParseStream<'_>) -> Result<Self> {
        let (mut keys, mut name) = (OptionKeys::default(), None);
        while !input.is_empty() {
            let key = keys.parse(input)?;
            if key != "name" {
                return Err(Error::new_spanned(key, format!("the option of a {kind} is `name = \"…\"`")));
            }
            input.parse::<Token![=]>()?;
            name = Some(input.parse()?);
            skip_comma(input)?;
        }
        Ok(Self(name))
    }

    /// Returns the name of the option, or `name` without one.
    pub fn or(self, name: String) -> String {
        self.0.map_or(name, |name| name.value())
    }
}

/// Converts `before_tool` to `BeforeTool`.
pub fn pascal_case(name: &str) -> String {
    let capital = |word: &str| match word.split_at_checked(1) {
        Some((first, rest)) => first.to_ascii_uppercase() + rest,
        None => word.to_owned(),
    };
    name.split('_').map(capital).collect()
}

/// Converts `RateLimit` to `rate_limit`, and `HTTPLog` to `http_log`.
pub fn snake_case(name: &str) -> String {
    let mut snake = String::new();
    let mut previous: Option<char> = None;
    let mut letters = name.chars().peekable();
    while let Some(letter) = letters.next() {
        let ends_word = previous.is_some_and(|previous| previous != '_' && !previous.is_uppercase());
        let ends_acronym =
            previous.is_some_and(char::is_uppercase) && letters.peek().is_some_and(|next| next.is_lowercase());
        if letter.is_uppercase() && (ends_word || ends_acronym) {
            snake.push('_');
        }
        snake.extend(letter.to_lowercase());
        previous = Some(letter);
    }
    snake
}

/// Skips the comma between options, if this is not the last.
pub fn skip_comma(input: ParseStream<'_>) -> Result<()> {
    if !input.is_empty() {
        input.parse::<syn::Token![,]>()?;
    }
    Ok(())
}
