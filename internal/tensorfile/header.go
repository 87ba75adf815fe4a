package tensorfile

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

const (
	lengthBytes    = 8 // the header's length comes first, little-endian
	maxHeaderBytes = 100_000_000
	metadataKey    = "__metadata__"
)

// parseHeader decodes the JSON header. It reads tokens, since decoding into a map would keep the last of two
// equal keys without a word.
func parseHeader(raw []byte) (metadata map[string]string, tensors []Tensor, err error) {
	if len(raw) == 0 || raw[0] != '{' {
		return nil, nil, fmt.Errorf("the header starts with %.1q, want '{'", raw)
	}
	if err := checkText(raw); err != nil {
		return nil, nil, err
	}
	d := headerDecoder{json.NewDecoder(bytes.NewReader(raw))}
	d.UseNumber()
	metadata = map[string]string{}
	err = d.object("the header", func(key string) error {
		if key == metadataKey {
			return d.object(metadataKey, func(key string) error {
				value, err := d.text(fmt.Sprintf("%s: %.100q", metadataKey, key))
				metadata[key] = value
				return err
			})
		}
		t, err := d.tensor(key)
		tensors = append(tensors, t)
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	if rest := bytes.TrimLeft(raw[d.InputOffset():], " \t\r\n"); len(rest) > 0 {
		return nil, nil, fmt.Errorf("the header goes on with %.20q after its closing brace, want only spaces", rest)
	}
	return metadata, tensors, nil
}

// checkText refuses what encoding/json would silently replace by U+FFFD: bytes that are not UTF-8, and \u escapes
// of half a surrogate pair.
func checkText(raw []byte) error {
	if !utf8.Valid(raw) {
		return errors.New("the header is not UTF-8")
	}
	for {
		i := bytes.IndexByte(raw, '\\')
		if i < 0 {
			return nil
		}
		raw = raw[i:]
		n := 2
		if r := escapedRune(raw); utf16.IsSurrogate(r) {
			if utf16.DecodeRune(r, escapedRune(raw[6:])) == utf8.RuneError {
				return fmt.Errorf("the header's escape %s is half a surrogate pair", raw[:6])
			}
			n = 12
		}
		raw = raw[min(n, len(raw)):]
	}
}

// escapedRune returns the value of the \uXXXX that b starts with, or -1.
func escapedRune(b []byte) rune {
	if len(b) < 6 || b[0] != '\\' || b[1] != 'u' {
		return -1
	}
	v, err := strconv.ParseUint(string(b[2:6]), 16, 16)
	if err != nil {
		return -1
	}
	return rune(v)
}

type headerDecoder struct{ *json.Decoder }

func (d headerDecoder) tensor(name string) (Tensor, error) {
	t := Tensor{Name: name}
	what := fmt.Sprintf("tensor %.100q", name)
	var offsets []int64
	found := 0
	err := d.object(what, func(key string) (err error) {
		found++
		switch key {
		case "dtype":
			var dtype string
			dtype, err = d.text(what + ": dtype")
			t.DType = DType(dtype)
		case "shape":
			t.Shape, err = d.integers(what + ": shape")
		case "data_offsets":
			offsets, err = d.integers(what + ": data_offsets")
		default:
			err = fmt.Errorf("%s: key %.100q is unknown, want dtype, shape and data_offsets", what, key)
		}
		return err
	})
	switch {
	case err != nil:
		return t, err
	case found < 3:
		return t, fmt.Errorf("%s: %d of the keys dtype, shape and data_offsets, want all three", what, found)
	case t.DType == "":
		return t, fmt.Errorf("%s: dtype is empty", what)
	case len(offsets) != 2:
		return t, fmt.Errorf("%s: %d data_offsets, want 2", what, len(offsets))
	case offsets[0] > offsets[1]:
		return t, fmt.Errorf("%s: data_offsets %d are reversed", what, offsets)
	}
	t.Offset, t.Bytes = offsets[0], offsets[1]-offsets[0]
	want, err := t.size()
	if err == nil && want != t.Bytes {
		err = fmt.Errorf("%s: data_offsets span %d bytes, shape %s of %s takes %d", what, t.Bytes, shapeText(t.Shape), t.DType, want)
	}
	return t, err
}

// object calls member for each key, which has to read the value, and refuses a key that comes twice.
func (d headerDecoder) object(what string, member func(key string) error) error {
	token, err := d.token()
	if err != nil {
		return err
	}
	if token != json.Delim('{') {
		return fmt.Errorf("%s is %s, want an object", what, tokenText(token))
	}
	seen := map[string]bool{}
	for {
		token, err := d.token()
		if err != nil {
			return err
		}
		key, isKey := token.(string)
		if !isKey {
			return nil
		}
		if seen[key] {
			return fmt.Errorf("%s has the key %.100q twice", what, key)
		}
		seen[key] = true
		if err := member(key); err != nil {
			return err
		}
	}
}

func (d headerDecoder) text(what string) (string, error) {
	token, err := d.token()
	if err != nil {
		return "", err
	}
	s, ok := token.(string)
	if !ok {
		return "", fmt.Errorf("%s is %s, want a string", what, tokenText(token))
	}
	return s, nil
}

func (d headerDecoder) integers(what string) ([]int64, error) {
	token, err := d.token()
	if err != nil {
		return nil, err
	}
	if token != json.Delim('[') {
		return nil, fmt.Errorf("%s is %s, want an array", what, tokenText(token))
	}
	list := []int64{}
	for {
		token, err := d.token()
		if err != nil {
			return nil, err
		}
		if token == json.Delim(']') {
			return list, nil
		}
		number, _ := token.(json.Number)
		v, err := strconv.ParseUint(string(number), 10, 63)
		if err != nil {
			return nil, fmt.Errorf("%s holds %s, want whole numbers from 0 to 2^63-1", what, tokenText(token))
		}
		list = append(list, int64(v))
	}
}

func (d headerDecoder) token() (json.Token, error) {
	token, err := d.Token()
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return nil, errors.New("the header ends in the middle of its JSON")
	}
	if err != nil {
		return nil, fmt.Errorf("the header is not JSON: %v, at byte %d of it", err, d.InputOffset())
	}
	return token, nil
}

func tokenText(token json.Token) string {
	switch v := token.(type) {
	case nil:
		return "null"
	case string:
		return fmt.Sprintf("%.100q", v)
	case json.Delim:
		return map[json.Delim]string{'{': "an object", '[': "an array"}[v]
	}
	return fmt.Sprintf("%.100v", token)
}

// arrange puts tensors in the order of their data, which has to be covered without holes or overlaps.
func arrange(tensors []Tensor, dataBytes int64) error {
	slices.SortStableFunc(tensors, func(a, b Tensor) int {
		return cmp.Or(cmp.Compare(a.Offset, b.Offset), cmp.Compare(a.Bytes, b.Bytes))
	})
	end := int64(0)
	for i, t := range tensors {
		switch {
		case t.Offset > dataBytes || t.Bytes > dataBytes-t.Offset:
			return fmt.Errorf("tensor %.100q ends at byte %d of the data, the file holds %d", t.Name, t.Offset+t.Bytes, dataBytes)
		case t.Offset < end:
			return fmt.Errorf("tensors %.100q and %.100q overlap: one ends at byte %d of the data, the other starts at %d",
				tensors[i-1].Name, t.Name, end, t.Offset)
		case t.Offset > end:
			return fmt.Errorf("bytes %d to %d of the data, before tensor %.100q, belong to no tensor", end, t.Offset, t.Name)
		}
		end += t.Bytes
	}
	if end != dataBytes {
		return fmt.Errorf("the tensors end at byte %d of the data, the file holds %d", end, dataBytes)
	}
	return nil
}

// encodeHeader returns the length and the header of tensors that are laid out already, padded with spaces so that
// the data starts at a multiple of 8.
func encodeHeader(metadata map[string]string, tensors []Tensor) ([]byte, error) {
	b := append(make([]byte, lengthBytes), '{')
	if len(metadata) > 0 {
		b = appendMember(b, metadataKey, metadata)
	}
	for _, t := range tensors {
		b = appendMember(b, t.Name, struct {
			DType   DType    `json:"dtype"`
			Shape   []int64  `json:"shape"`
			Offsets [2]int64 `json:"data_offsets"`
		}{t.DType, t.Shape, [2]int64{t.Offset, t.Offset + t.Bytes}})
	}
	b = append(b, '}')
	for len(b)%8 != 0 {
		b = append(b, ' ')
	}
	n := len(b) - lengthBytes
	if n > maxHeaderBytes {
		return nil, fmt.Errorf("the header takes %d bytes, at most %d are allowed", n, maxHeaderBytes)
	}
	binary.LittleEndian.PutUint64(b, uint64(n))
	return b, nil
}

func appendMember(b []byte, key string, value any) []byte {
	if b[len(b)-1] != '{' {
		b = append(b, ',')
	}
	keyText, _ := json.Marshal(key) // strings, integers, and maps and structs of them do not fail
	valueText, _ := json.Marshal(value)
	return append(append(append(b, keyText...), ':'), valueText...)
}
