# A container that was started without the device.
set_up() { mv /dev/infiniband/uverbs0 /run/uverbs0.away; }
undo() { mv /run/uverbs0.away /dev/infiniband/uverbs0; }
