package optim

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// encoding/json ignores repeated keys, the case of keys and surplus array elements, and its errors do not say which
// element of which list was wrong; so objects are taken apart here and only the leaves are left to it.

// A member is one key of a JSON object and its value's text.
type member struct {
	key   string
	value json.RawMessage
}

// parse returns the one JSON value that data holds, without the space around it.
func parse(data []byte) ([]byte, error) {
	if !utf8.Valid(data) {
		return nil, problem("", "the configuration is not valid UTF-8")
	}
	var value json.RawMessage
	if err := json.Unmarshal(data, &value); err != nil {
		return nil, problem("", "the configuration is not valid JSON: %v", err)
	}
	return bytes.TrimSpace(value), nil
}

// members takes valid JSON text apart.
func members(object []byte) ([]member, error) {
	if object[0] != '{' {
		return nil, problem("", "got %s, want an object", found(object))
	}
	d := json.NewDecoder(bytes.NewReader(object))
	if _, err := d.Token(); err != nil {
		return nil, problem("", "%v", err)
	}
	var list []member
	seen := map[string]bool{}
	for d.More() {
		token, err := d.Token()
		if err != nil {
			return nil, problem("", "%v", err)
		}
		m := member{key: token.(string)}
		if seen[m.key] {
			return nil, problem("", "key %s appears twice", shorten(strconv.Quote(m.key)))
		}
		seen[m.key] = true
		if err := d.Decode(&m.value); err != nil {
			return nil, problem(m.key, "%v", err)
		}
		list = append(list, m)
	}
	return list, nil
}

// decodeObject sets the fields of the struct v that list names, and leaves the others as they are. A field tagged
// required must be named.
func decodeObject(list []member, v reflect.Value) error {
	fields := jsonFields(v.Type())
	for _, m := range list {
		i := slices.IndexFunc(fields, func(f field) bool { return f.key == m.key })
		if i < 0 {
			return unknownKey(m.key, fields)
		}
		f := fields[i]
		if err := decode(m.value, v.FieldByIndex(f.index), f.want); err != nil {
			return at(m.key, err)
		}
		fields[i].required = false
	}
	for _, f := range fields {
		if f.required {
			return problem(f.key, "missing, want %s", wanted(v.FieldByIndex(f.index).Type(), f.want))
		}
	}
	return nil
}

// decodeOnly sets the one field of the struct that v points to, and checks it.
func decodeOnly(list []member, v any) error {
	target := reflect.ValueOf(v).Elem()
	key := jsonFields(target.Type())[0].key
	if i := slices.IndexFunc(list, func(m member) bool { return m.key == key }); i >= 0 {
		if err := decodeObject(list[i:i+1], target); err != nil {
			return err
		}
	}
	return check(target)
}

// A field is one JSON key of a struct.
type field struct {
	key      string
	want     string // the tag that wanted describes
	index    []int
	required bool
}

func jsonFields(t reflect.Type) []field {
	var fields []field
	for _, f := range reflect.VisibleFields(t) {
		if tag, ok := f.Tag.Lookup("json"); ok {
			key, _, _ := strings.Cut(tag, ",")
			_, required := f.Tag.Lookup("required")
			fields = append(fields, field{key, f.Tag.Get("want"), f.Index, required})
		}
	}
	return fields
}

// decode sets v, an addressable zero or default value, from valid JSON text.
func decode(data []byte, v reflect.Value, want string) error {
	if strings.HasPrefix(want, orNull) && string(data) == "null" {
		v.SetZero()
		return nil
	}
	if u, ok := v.Addr().Interface().(json.Unmarshaler); ok {
		return u.UnmarshalJSON(data)
	}
	mismatch := problem("", "got %s, want %s", found(data), wanted(v.Type(), want))
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		return decode(data, v.Elem(), want)
	case reflect.Struct:
		list, err := members(data)
		if err != nil {
			return err
		}
		return decodeObject(list, v)
	case reflect.Array, reflect.Slice:
		return decodeList(data, v, want, mismatch)
	case reflect.String:
		var s string
		if json.Unmarshal(data, &s) != nil || s == "" {
			return mismatch
		}
		v.SetString(s)
	case reflect.Bool:
		if data[0] != 't' && data[0] != 'f' {
			return mismatch
		}
		v.SetBool(data[0] == 't')
	case reflect.Float64:
		x, err := strconv.ParseFloat(string(data), 64)
		if errors.Is(err, strconv.ErrRange) {
			return problem("", "got %s, which is beyond float64", found(data))
		}
		if err != nil {
			return mismatch
		}
		v.SetFloat(x)
	case reflect.Int, reflect.Int64:
		n, err := strconv.ParseInt(string(data), 10, v.Type().Bits())
		if err != nil {
			return mismatch
		}
		v.SetInt(n)
	case reflect.Uint64:
		n, err := strconv.ParseUint(string(data), 10, 64)
		if err != nil {
			return mismatch
		}
		v.SetUint(n)
	}
	return nil
}

func decodeList(data []byte, v reflect.Value, want string, mismatch error) error {
	var elements []json.RawMessage
	if data[0] != '[' || json.Unmarshal(data, &elements) != nil {
		return mismatch
	}
	if v.Kind() == reflect.Array && len(elements) != v.Len() {
		return problem("", "got %d elements, want %d", len(elements), v.Len())
	}
	if v.Kind() == reflect.Slice {
		v.SetZero()
		if len(elements) > 0 {
			v.Set(reflect.MakeSlice(v.Type(), len(elements), len(elements)))
		}
	}
	for i, element := range elements {
		if err := decode(element, v.Index(i), want); err != nil {
			return at(index(i), err)
		}
	}
	return nil
}

// A keyError is a problem with the value of one key, which is a path such as lr.knots[1].at, or empty.
type keyError struct{ key, problem string }

func (e *keyError) Error() string {
	if e.key == "" {
		return "optim: " + e.problem
	}
	return "optim: " + e.key + ": " + e.problem
}

func problem(key, format string, args ...any) error {
	return &keyError{key, fmt.Sprintf(format, args...)}
}

// at puts key before the path of err, which this package made.
func at(key string, err error) error {
	e := err.(*keyError)
	if e.key != "" && e.key[0] != '[' {
		key += "."
	}
	return &keyError{key + e.key, e.problem}
}

func index(i int) string { return fmt.Sprintf("[%d]", i) }

// found describes JSON text in an error.
func found(data []byte) string {
	switch data[0] {
	case '{':
		return "an object"
	case '[':
		return "an array"
	}
	return shorten(string(data))
}

func shorten(s string) string {
	const most = 60
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}

func number(x float64) string { return strconv.FormatFloat(x, 'g', -1, 64) }
