package codebook

// Nibble is the order of two 4-bit codes in a byte.
type Nibble uint8

const (
	LowFirst  Nibble = iota // the even element in the low half: AReno
	HighFirst               // the even element in the high half: bitsandbytes, torchao
)

func (n Nibble) String() string {
	if n == HighFirst {
		return "high"
	}
	return "low"
}

// Get returns code i of a packed slice.
func (n Nibble) Get(packed []uint8, i int) uint8 {
	return packed[i/2] >> n.shift(i) & 15
}

// Put writes code i of a packed slice and leaves the byte's other code as it is.
func (n Nibble) Put(packed []uint8, i int, code uint8) {
	shift := n.shift(i)
	packed[i/2] = packed[i/2]&^(15<<shift) | code<<shift
}

func (n Nibble) shift(i int) int {
	return 4 * (i&1 ^ int(n))
}
