// Package glob matches whole tensor and parameter names with shell patterns.
package glob

import (
	"fmt"
	"regexp"
	"regexp/syntax"
	"strings"
)

// token is one element of a pattern, or else a character that begins an unfinished one.
var token = regexp.MustCompile(`(?s)\*+|\?|\[[!^](?:\\.|[^\]\\])+\]|\[(?:\\.|[^\]\\!^])(?:\\.|[^\]\\])*\]|\\.|[^*?\[\\]+|.`)

// Compile translates a pattern for whole names: * stands for any run of characters, dots and slashes included, ? for
// one character, [a-z] for one of a class, [^a-z] or [!a-z] for one outside it, and \ takes the next character as it
// is.
func Compile(pattern string) (*regexp.Regexp, error) {
	var b strings.Builder
	b.WriteString(`(?s)\A`)
	for _, t := range token.FindAllString(pattern, -1) {
		switch {
		case t[0] == '*':
			b.WriteString(".*")
		case t == "?":
			b.WriteString(".")
		case t == "[":
			return nil, fmt.Errorf("malformed pattern %q: [ needs characters and a ]", pattern)
		case t == `\`:
			return nil, fmt.Errorf(`malformed pattern %q: \ needs a character after it`, pattern)
		case t[0] == '[':
			writeClass(&b, t)
		default:
			b.WriteString(regexp.QuoteMeta(strings.TrimPrefix(t, `\`)))
		}
	}
	b.WriteString(`\z`)
	re, err := regexp.Compile(b.String())
	if err != nil {
		return nil, fmt.Errorf("malformed pattern %q: %v", pattern, err.(*syntax.Error).Code)
	}
	return re, nil
}

// writeClass translates a class: the regular expression's has the same form but more characters with a meaning.
func writeClass(b *strings.Builder, class string) {
	body := class[1 : len(class)-1]
	b.WriteByte('[')
	if body[0] == '!' || body[0] == '^' {
		b.WriteByte('^')
		body = body[1:]
	}
	escaped := false
	for _, r := range body {
		switch {
		case r == '\\' && !escaped:
			escaped = true
			continue
		case r == '-' && !escaped:
			b.WriteByte('-')
		case r == '-':
			b.WriteString(`\-`)
		case strings.ContainsRune(`^[]\&~:`, r):
			b.WriteByte('\\')
			b.WriteRune(r)
		default:
			b.WriteRune(r)
		}
		escaped = false
	}
	b.WriteByte(']')
}
